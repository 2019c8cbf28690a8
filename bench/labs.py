"""Every experiment of the lab in its default form; writes docs/lab: a page, a picture and the numbers of each.

python bench/labs.py                  # all of them: half an hour on two cores
python bench/labs.py cost             # one anew; the index is made from the numbers of all
python bench/labs.py --redraw         # nothing is measured: pages and pictures from the numbers in docs/lab

What was measured before (runs/lab) is not measured again, unless --again is given. The times of `cost` want a machine
that does nothing else.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from seqloom.lab.catalogue import QUESTIONS, find_experiment
from seqloom.lab.experiment import Results
from seqloom.lab.session import run_experiment, show

PAGES = Path(__file__).parents[1] / "docs" / "lab"
INDEX = """# What the lab found

Every page here was written by `seqloom lab NAME` and not touched since: a picture, the tables, and each claim with its
verdict. [How to run them, on models of your own, too](../lab.md).

{table}

{count} claims were put to the test: {held} hold, {failed} do not.

{claims}
{others}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which experiments; by default all")
    parser.add_argument("--again", action="store_true", help="measure anew what was measured before")
    parser.add_argument("--redraw", action="store_true", help="measure nothing; draw from the numbers in docs/lab")
    options = parser.parse_args()
    PAGES.mkdir(exist_ok=True)
    for name in options.names or QUESTIONS:
        if options.redraw:
            redraw(name)
            continue
        shown = run_experiment(name, again=options.again, say=report)
        for ending in (".md", ".svg", ".json"):
            shutil.copyfile(shown.folder / (name + ending), PAGES / (name + ending))
        print(shown.text, end="\n\n", flush=True)
    paths = [PAGES / f"{name}.json" for name in QUESTIONS]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    (PAGES / "README.md").write_text(write_index(found), encoding="utf-8")


def redraw(name: str) -> None:
    """Write a page again from its numbers, for pictures that are drawn in another way."""
    facts = json.loads((PAGES / f"{name}.json").read_text(encoding="utf-8"))
    experiment = find_experiment(name)
    parameters = experiment.parameters.model_validate_json(json.dumps(facts["parameters"]))
    shown = experiment.report(parameters, Results(facts["results"]))
    about = {key: facts[key] for key in ("seqloom", "command", "parameters", "seeds")}
    show(experiment, shown, PAGES, about, facts["results"])


def report(done: int, total: int, text: str) -> None:
    print(f"{done} of {total}: {text}", file=sys.stderr, flush=True)


def write_index(found: list[dict[str, Any]]) -> str:
    """A line for each experiment, then every claim with its verdict."""
    rows = []
    for facts in found:
        held = sum(claim["holds"] for claim in facts["claims"])
        name = facts["experiment"]
        rows.append([f"[{name}]({name}.md)", facts["question"], facts["teaches"], f"{held} of {len(facts['claims'])}"])
    claims = [(facts["experiment"], claim) for facts in found for claim in facts["claims"]]
    held = sum(claim["holds"] for _, claim in claims)
    told = [
        [f"[{name}]({name}.md)", claim["said"], "holds" if claim["holds"] else "**does not hold**", claim["found"]]
        for name, claim in claims
    ]
    return INDEX.format(
        table=write_table(["experiment", "question", "what it teaches", "claims that hold"], rows),
        claims=write_table(["experiment", "what is said", "here", "what was found"], told),
        count=len(claims),
        held=held,
        failed=len(claims) - held,
        others=list_others(),
    )


def list_others() -> str:
    """Pages in the same folder that other programs wrote."""
    found = [path for path in sorted(PAGES.glob("*.md")) if path.stem not in (*QUESTIONS, "README")]
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in found]
    lines = [f"- [{title}]({path.name})" for path, title in zip(found, titles, strict=True)]
    return "\n".join(["", "Beside the experiments:", "", *lines, ""]) if lines else ""


def write_table(head: list[str], rows: list[list[str]]) -> str:
    """A table whose cells are as long as their text: sentences would make columns of one width too wide to read."""
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


if __name__ == "__main__":
    main()
