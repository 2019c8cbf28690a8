"""Direct logit attribution beside TransformerLens: the same GPT-2 with random weights, the same text, head by head.

    python bench/lens.py                        # makes an environment with TransformerLens in build/transformer-lens
    python bench/lens.py --environment FOLDER   # or uses that one

TransformerLens folds the gains of norms into the matrices after them, in float32; here all runs in float64.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIZES = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 40, "vocab_size": 60}
TEXT = "w7 w12 w3 w3 w41 w7 w12"
TOKEN, AGAINST = 8, 17
CLOSE = 1e-8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=ROOT / "build" / "transformer-lens")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(ask_peer(json.loads(options.peer.read_text(encoding="utf-8")))))
        return
    python = make_environment(options.environment)
    with tempfile.TemporaryDirectory() as name:
        ours, request = ask_ours(Path(name))
        path = Path(name) / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        command = [str(python), __file__, "--peer", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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


def ask_ours(folder: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Our contributions to the last prediction, and what the peer needs to compute its own."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    import transformers

    import seqloom
    from parity.published import SENTENCE_TOKENS, randomise, write_tokenizer

    torch.manual_seed(0)
    tokens = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **tokens))
    randomise(model)
    model.save_pretrained(folder)
    roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
    write_tokenizer(folder, SIZES["vocab_size"], SENTENCE_TOKENS, "<unk>", **roles)
    loaded = seqloom.load(folder)
    loaded.network.double()
    trace = loaded.trace(TEXT)
    found = trace.contributions(-1, TOKEN, AGAINST)
    assert abs(found.gap) < CLOSE
    weights = {name: value.double().tolist() for name, value in model.state_dict().items() if value.is_floating_point()}
    ids = [token.id for token in trace.side("text").tokens]
    pattern = trace.mixing("decoder.2.head.1")[-1].tolist()
    return {item.site: item.value for item in found.items} | {"logit": found.logit, "pattern": pattern}, {
        "ids": ids,
        "weights": weights,
        "sizes": SIZES,
    }


def ask_peer(request: dict[str, Any]) -> dict[str, float]:
    """The same by TransformerLens."""
    import torch
    import transformer_lens
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    sizes, weights = request["sizes"], {k: torch.tensor(v).double() for k, v in request["weights"].items()}
    heads, dim = sizes["n_head"], sizes["n_embd"]
    config = HookedTransformerConfig(
        n_layers=sizes["n_layer"],
        d_model=dim,
        n_ctx=sizes["n_positions"],
        d_head=dim // heads,
        n_heads=heads,
        d_mlp=4 * dim,
        d_vocab=sizes["vocab_size"],
        act_fn="gelu_new",
        normalization_type="LN",
        dtype=torch.float64,
    )
    state = {
        "embed.W_E": weights["transformer.wte.weight"],
        "pos_embed.W_pos": weights["transformer.wpe.weight"],
        "ln_final.w": weights["transformer.ln_f.weight"],
        "ln_final.b": weights["transformer.ln_f.bias"],
        "unembed.W_U": weights["transformer.wte.weight"].T,
        "unembed.b_U": torch.zeros(sizes["vocab_size"]).double(),
    }
    for layer in range(sizes["n_layer"]):
        own = {k.removeprefix(f"transformer.h.{layer}."): v for k, v in weights.items() if f".h.{layer}." in k}
        name = f"blocks.{layer}"
        for norm in ("1", "2"):
            state |= {f"{name}.ln{norm}.w": own[f"ln_{norm}.weight"], f"{name}.ln{norm}.b": own[f"ln_{norm}.bias"]}
        for letter, matrix, bias in zip(
            "QKV", own["attn.c_attn.weight"].chunk(3, 1), own["attn.c_attn.bias"].chunk(3), strict=True
        ):
            state[f"{name}.attn.W_{letter}"] = matrix.unflatten(1, (heads, -1)).transpose(0, 1)
            state[f"{name}.attn.b_{letter}"] = bias.unflatten(0, (heads, -1))
        state[f"{name}.attn.W_O"] = own["attn.c_proj.weight"].unflatten(0, (heads, -1))
        state[f"{name}.attn.b_O"] = own["attn.c_proj.bias"]
        state |= {f"{name}.mlp.W_in": own["mlp.c_fc.weight"], f"{name}.mlp.b_in": own["mlp.c_fc.bias"]}
        state |= {f"{name}.mlp.W_out": own["mlp.c_proj.weight"], f"{name}.mlp.b_out": own["mlp.c_proj.bias"]}
    model = HookedTransformer(config)
    model.load_and_process_state_dict(
        state, fold_ln=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False
    )
    model = model.double()
    logits, cache = model.run_with_cache(torch.tensor([request["ids"]]), prepend_bos=False)
    direction = model.W_U[:, TOKEN] - model.W_U[:, AGAINST]
    cache.compute_head_results()
    results, labels = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True, apply_ln=True)
    found = {}
    for label, vector in zip(labels, results[:, 0], strict=True):
        layer, head = label[1:].split("H")
        found[f"decoder.{layer}.head.{head}"] = float(vector @ direction)
    parts, labels = cache.decompose_resid(layer=-1, mode="mlp", pos_slice=-1, return_labels=True, apply_ln=True)
    names = {"embed": "decoder.embedding", "pos_embed": "decoder.positions"}
    names |= {f"{layer}_mlp_out": f"decoder.{layer}.feedforward" for layer in range(sizes["n_layer"])}
    found |= {
        names[label]: float(vector @ direction)
        for label, vector in zip(labels, parts[:, 0], strict=True)
        if label in names
    }
    found["logit"] = float(logits[0, -1, TOKEN] - logits[0, -1, AGAINST])
    found["pattern"] = cache["blocks.2.attn.hook_pattern"][0, 1, -1].tolist()  # type: ignore[assignment]
    found["version"] = getattr(transformer_lens, "__version__", "?")
    return found


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
