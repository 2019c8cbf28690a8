"""A translation model from the file that `weft new translation` writes: `python bench/multi30k.py DATA [--write]`

DATA is a folder with Multi30k, task 1, tokenised and lower-cased (train, val and test_2016_flickr, `.lc.norm.tok.de.gz`
and `.en.gz`). Nothing but the names of the files is put into the configuration. The figures are BLEU of the tokens as
they are, on the 1,000 lines of test 2016, with their 95% interval. A finished run in `--out` is only evaluated.
"""

import argparse
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

from results import draw_table, write_section

WEFT = [sys.executable, "-m", "weft"]
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
WAYS = {
    "greedy": (),
    "beam of 5": ("--beam", "5"),
    "greedy, CTranslate2": ("--engine", "ctranslate2"),
    "greedy, CTranslate2, int8": ("--engine", "ctranslate2-int8"),
}


def lay_down(data: Path, folder: Path) -> Path:
    """The texts and a new configuration for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for ours, theirs in SPLITS.items():
        for side in ("de", "en"):
            with gzip.open(data / f"{theirs}.lc.norm.tok.{side}.gz") as packed:
                (folder / f"{ours}.{side}").write_bytes(packed.read())
    config = folder / "de-en.toml"
    if not config.exists():  # its sides are called train.de, train.en, valid.de and valid.en already
        subprocess.run([*WEFT, "new", "translation", "-o", str(config)], check=True)
    return config


def evaluate(run: Path, folder: Path, *options: str) -> str:
    """BLEU and its interval."""
    texts = [str(folder / f"test.{side}") for side in ("de", "en")]
    command = [*WEFT, "eval", str(run), "--data", *texts, "--tokenized", "--metric", "bleu", "--json", *options]
    bleu = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["metrics"][0]
    return f"{bleu['value']:.2f} ({bleu['low']:.2f} to {bleu['high']:.2f})"


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"), help="where the texts and the run go")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="renew the section of docs/results.md")
    options = parser.parse_args()
    config, run = lay_down(options.data, options.out), options.out / "run"
    if not (run / "manifest.json").exists():
        threads = f"train.threads={options.threads}"
        subprocess.run([*WEFT, "train", str(config), threads, "--out", str(run)], check=True)
    installed = shutil.which("ct2-transformers-converter", path=str(Path(sys.executable).parent)) is not None
    ways = {name: way for name, way in WAYS.items() if installed or "CTranslate2" not in name}
    rows = [[name, evaluate(run, options.out, *way)] for name, way in ways.items()]
    last = json.loads((run / "speed.jsonl").read_text().splitlines()[-1])
    text = "\n\n".join(
        [
            "## Multi30k, German to English, from `weft new translation`\n\n29,000 pairs, tokenised and lower-cased; "
            "no number of the configuration was touched (a Transformer of width 128, 4 + 4 layers, 10 epochs). "
            f"{last['step']:,} steps in {last['seconds'] / 60:.0f} minutes of training on a shared machine.",
            draw_table(["search", "BLEU, test 2016"], rows),
        ]
    )
    print(text)
    if options.write:
        write_section("bench/multi30k.py", text)


if __name__ == "__main__":
    main()
