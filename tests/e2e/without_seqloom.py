"""Exported models used where there is no Seqloom: `python -I -S without_seqloom.py SITE FORMAT FOLDER < lines`."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])  # the libraries, without what an editable install adds to them
try:
    import seqloom  # noqa: F401
except ImportError:
    pass
else:
    sys.exit("seqloom can be imported here: this environment is not clean")

import numpy as np
import tokenizers

FOLDER = Path(sys.argv[3])


def use_huggingface(line: str) -> str:
    import transformers

    spell = transformers.AutoTokenizer.from_pretrained(FOLDER)
    architecture = json.loads((FOLDER / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(FOLDER)
    given = spell(line, return_tensors="pt")
    if "Token" in architecture:
        best = model(**given).logits[0].argmax(-1).tolist()[1:-1]
        return " ".join(model.config.id2label[number] for number in best)
    found = model.generate(**given)[0].tolist()
    kept = found if "Generation" in architecture else found[given["input_ids"].shape[1] :]
    return str(spell.decode(kept, skip_special_tokens=True)).strip()


def use_ctranslate2(line: str) -> str:
    import ctranslate2

    spell = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokens = spell.encode(line, add_special_tokens=False).tokens
    never = [["[PAD]"], ["[BOS]"], ["[MASK]"], ["[CLS]"], ["[SEP]"]]
    if (FOLDER / "shared_vocabulary.json").exists():
        model = ctranslate2.Translator(str(FOLDER))
        found = model.translate_batch([[*tokens, "[EOS]"]], beam_size=1, suppress_sequences=never)[0].hypotheses[0]
    else:
        model = ctranslate2.Generator(str(FOLDER))
        options = {"max_length": 64, "include_prompt_in_result": False, "suppress_sequences": never}
        found = model.generate_batch([tokens], **options)[0].sequences[0]
    return str(spell.decode([spell.token_to_id(token) for token in found])).strip()


def use_onnx(line: str) -> str:
    import onnxruntime

    said = json.loads((FOLDER / "model.json").read_text())
    spell = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = [*said["before"], *spell.encode(line, add_special_tokens=False).ids, *said["after"]]
    graphs = {name: onnxruntime.InferenceSession(str(FOLDER / f"{name}.onnx")) for name in said["graphs"]}

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        wanted = {entry.name: given[entry.name] for entry in graphs[name].get_inputs()}
        return dict(zip(said["graphs"][name]["outputs"], graphs[name].run(None, wanted), strict=True))

    read = {"ids": np.array([ids]), "mask": np.ones((1, len(ids)), bool)}
    if not said["ends"]:
        best = run("model", read)["scores"][0].argmax(-1)
        if best.ndim == 0:
            return str(said["labels"][int(best)])
        return " ".join(said["labels"][number] for number in best[len(said["before"]) : -len(said["after"])])
    last = "decoder" if "decoder" in graphs else "model"
    shapes = said["graphs"][last]["inputs"].items()
    kept = {
        name: np.zeros([{"batch": 1, "past": 0}.get(side, side) for side in shape], np.float32)
        for name, shape in shapes
        if name.startswith("past.")
    }
    if last == "decoder":
        kept |= run("encoder", read) | {"mask": read["mask"]}
    new, found = (said["start"] if last == "decoder" else ids), []
    while len(found) < 64:
        out = run(last, {**kept, "ids": np.array([new])})
        scores = out.pop("scores")[0, -1]
        scores[said["never"]] = -np.inf
        new = [int(scores.argmax())]
        if new[0] in said["ends"]:
            break
        found += new
        kept |= {name.replace("present", "past"): value for name, value in out.items()}
    return str(spell.decode(found)).strip()


USES = {"huggingface": use_huggingface, "ctranslate2": use_ctranslate2, "onnx": use_onnx}
for given in sys.stdin.read().splitlines():
    print(USES[sys.argv[2]](given))
