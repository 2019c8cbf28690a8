"""What the lab finds in a published Transformer: all-MiniLM-L6-v2; writes docs/lab/minilm.md, .svg and .json.

python bench/minilm.py all-MiniLM-L6-v2 en_ewt-ud-dev.conllu.gz       # a minute of one core
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from seqloom import load
from seqloom.lab import context, probe
from seqloom.lab.chart import draw
from seqloom.lab.page import write_table

PAGES = Path(__file__).parents[1] / "docs" / "lab"
WORD, TEXTS, PARTNERS = "apple", ("apple released their new phone", "an apple and an orange"), ("phone", "orange")
PAGE = """# A published Transformer, with the same questions

The models of this lab are small and know an artificial English. Here, [all-MiniLM-L6-v2](../importing.md), six layers
pre-trained and tuned to embed real sentences, is asked what [context](context.md) and [probe](probe.md) ask.

![Left: cosines of apple to phone, orange and itself over layers. Right: probes for parts of speech]({name}.svg)

{tables}

| what is said | here | what was found |
| --- | --- | --- |
{claims}

In these two sentences, *apple* does move towards the words around it, which it does not do in the small models. (At the
input, the two apples differ a little, because a position is added to the word's own vector.) And the middle layers know
the parts of speech best: the last one was trained to say what a sentence is about.

The words are those of the first {sentences:,} sentences of the development set of Universal Dependencies English EWT:
half of them train the probes, the other half tests them. Made by:

```text
seqloom lab context {word} {texts} all-MiniLM-L6-v2{partners}
seqloom lab probe all-MiniLM-L6-v2 --data {data}
```

[Every number](minilm.json).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the folder of the model")
    parser.add_argument("data", type=Path, help="tagged sentences, CoNLL-U")
    options = parser.parse_args()
    name, count = "all-MiniLM-L6-v2", 1000
    model = load(options.model)
    moved = context.inspect({name: model}, WORD, TEXTS, PARTNERS)
    known = probe.inspect(model, options.data, count=count, name=name)
    claims = [*moved.claims, *known.claims]
    facts = {
        "tables": {
            title: {"head": table.head, "rows": table.rows}
            for title, (table,) in (("context", moved.tables), ("probe", known.tables))
        },
        "claims": [asdict(claim) for claim in claims],
    }
    page = PAGE.format(
        name="minilm",
        tables="\n\n".join(write_table(table) for table in (*moved.tables, *known.tables)),
        claims="\n".join(
            f"| {claim.said} | {'holds' if claim.holds else 'does not hold'} | {claim.found} |" for claim in claims
        ),
        sentences=count,
        word=WORD,
        texts=" ".join(f'"{text}"' for text in TEXTS),
        partners="".join(f" --with {one}" for one in PARTNERS),
        data=options.data.name,
    )
    picture = draw([*moved.panels, *known.panels], f"{moved.picture}. {known.picture}")
    (PAGES / "minilm.md").write_text(page, encoding="utf-8")
    (PAGES / "minilm.svg").write_text(picture, encoding="utf-8")
    (PAGES / "minilm.json").write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
