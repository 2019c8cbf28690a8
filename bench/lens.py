"""Direct logit attribution beside TransformerLens: the same GPT-2 with random weights, the same text, head by head.

    python bench/lens.py                        # makes an environment with TransformerLens in build/transformer-lens
    python bench/lens.py --environment FOLDER   # or uses that one

TransformerLens folds the gains of norms into the matrices after them, and rounds to float32 on the way.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIZES = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 40, "vocab_size": 60}
TEXT = "w7 w12 w3 w3 w41 w7 w12"
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
TOKEN, AGAINST = 8, 17
SEEN = "decoder.2.head.1"
CLOSE = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=ROOT / "build" / "transformer-lens")
    parser.add_argument("--peer", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        folder, *ids = options.peer
        print(json.dumps(ask_peer(folder, [int(id) for id in ids])))
        return
    python = make_environment(options.environment)
    with tempfile.TemporaryDirectory() as name:
        ours, ids = ask_ours(Path(name))
        command = [str(python), __file__, "--peer", name, *map(str, ids)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            sys.exit(f"TransformerLens failed:\n{done.stderr[-3000:]}")
        theirs = json.loads(done.stdout.splitlines()[-1])
    report(ours, theirs)


def make_environment(folder: Path) -> Path:
    """A virtual environment with the same torch and TransformerLens."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for package in (f"torch=={version('torch').partition('+')[0]}", "transformer-lens"):
            print(f"installing {package} in {folder}", flush=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=True)
        (folder / "ready").touch()
    return python


def ask_ours(folder: Path) -> tuple[dict[str, Any], list[int]]:
    """Our contributions to the last prediction, and the ids of the text."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    import transformers

    import seqloom
    from parity.published import SENTENCE_TOKENS, randomise, write_tokenizer

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **IDS))
    randomise(model)
    model.save_pretrained(folder)
    roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
    write_tokenizer(folder, SIZES["vocab_size"], SENTENCE_TOKENS, "<unk>", **roles)
    loaded = seqloom.load(folder)
    loaded.network.double()
    trace = loaded.trace(TEXT)
    found = trace.contributions(-1, TOKEN, AGAINST)
    numbers: dict[str, Any] = {item.site: item.value for item in found.items}
    numbers["logit"], numbers["pattern"] = found.logit, trace.mixing(SEEN)[-1].tolist()
    return numbers, [token.id for token in trace.side("text").tokens]


def ask_peer(folder: str, ids: list[int]) -> dict[str, Any]:
    """The same by TransformerLens."""
    import torch
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(folder, dtype=torch.float64, device="cpu")
    model.enable_compatibility_mode(
        disable_warnings=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False
    )
    logits, cache = model.run_with_cache(torch.tensor([ids]))
    direction = model.W_U[:, TOKEN] - model.W_U[:, AGAINST]
    cache.compute_head_results()
    heads = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True, apply_ln=True)
    others = cache.decompose_resid(layer=-1, mode="mlp", pos_slice=-1, return_labels=True, apply_ln=True)
    found: dict[str, Any] = {}
    for vectors, labels in (heads, others):
        found |= {name_site(label): float(one[0] @ direction) for one, label in zip(vectors, labels, strict=True)}
    found["logit"] = float(logits[0, -1, TOKEN] - logits[0, -1, AGAINST])
    _, layer, _, head = SEEN.split(".")
    found["pattern"] = cache[f"blocks.{layer}.attn.hook_pattern"][0, int(head), -1].tolist()
    return {**found, "version": version("transformer-lens")}


def name_site(label: str) -> str:
    """L2H3 is decoder.2.head.3."""
    names = {"embed": "decoder.embedding", "pos_embed": "decoder.positions"}
    if label in names:
        return names[label]
    if label.endswith("_mlp_out"):
        return f"decoder.{label.removesuffix('_mlp_out')}.feedforward"
    layer, head = label[1:].split("H")
    return f"decoder.{layer}.head.{head}"


def report(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    peer = theirs.pop("version")
    pattern = max(abs(a - b) for a, b in zip(ours.pop("pattern"), theirs.pop("pattern"), strict=True))
    shared = [name for name in ours if name in theirs]
    apart = {name: abs(ours[name] - theirs[name]) for name in shared}
    print(f"{'component':28} {'Seqloom':>14} {'TransformerLens ' + peer:>22}")
    for name in shared:
        print(f"{name:28} {ours[name]:14.10f} {theirs[name]:22.10f}")
    print(f"in the biases, of which TransformerLens has no sum: {ours['biases']:.10f}")
    worst = max(*apart.values(), pattern)
    print(f"{len(shared)} numbers and a row of attention weights; the largest difference is {worst:.1e}")
    if worst > CLOSE or len(shared) != SIZES["n_layer"] * (SIZES["n_head"] + 1) + 3:
        sys.exit("they are not the same")


if __name__ == "__main__":
    main()
