"""Folders that are as they should be, in the shapes they come in."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqloom.errors import DataError
from seqloom.hub.huggingface.files import convert_pickle
from seqloom.hub.load import is_published, load_published
from seqloom.predict.load import load

Bert = Callable[..., Path]


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_the_model_of_a_folder(bert: Bert) -> None:
    folder = bert()
    assert is_published(folder)
    model = load(folder)
    assert model.embed(["a b", "ce"]).shape == (2, 4)
    assert model.tokenizer.encode("A ce").tokens == ["a", "c", "##e"]


def test_parts_that_an_index_lists(bert: Bert) -> None:
    folder = bert()
    whole = load_published(folder).network
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    listed = {name: file for file, own in parts.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    assert same(load_published(folder).network, whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_shorter_and_longer_numbers(bert: Bert, dtype: torch.dtype) -> None:
    folder = bert()
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    found = load_published(folder).network
    assert torch.equal(found.embedding.weight, tensors["embeddings.word_embeddings.weight"].float())


def test_integers_are_refused(bert: Bert) -> None:
    folder = bert()
    tensors = {name: tensor.to(torch.int8) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"holds I8 \(quantised\?\)"):
        load_published(folder)


def test_names_of_checkpoints_from_tensorflow(bert: Bert) -> None:
    folder = bert()
    whole = load_published(folder).network
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(folder / "model.safetensors")
    for new, name in old.items():
        tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    assert same(load_published(folder).network, whole)


def test_a_tensor_too_many_and_one_too_few(bert: Bert) -> None:
    folder = bert()
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"adapter.weight": torch.ones(1)}, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"Seqloom has no place for adapter\.weight"):
        load_published(folder)
    del tensors["embeddings.LayerNorm.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"embeddings\.LayerNorm\.bias is missing"):
        load_published(folder)


def test_an_old_checkpoint_is_converted_on_request_only(bert: Bert) -> None:
    folder = bert()
    whole = load_published(folder).network
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"has no model\.safetensors; `seqloom unpickle"):
        load_published(folder)
    convert_pickle(folder)
    assert same(load_published(folder).network, whole)


def test_an_old_checkpoint_in_parts(bert: Bert) -> None:
    folder = bert()
    whole = load_published(folder).network
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "training_args.bin")
    with pytest.raises(DataError, match=r"has no model\.safetensors$"):
        load_published(folder)
    names = sorted(tensors)
    for number, own in enumerate((names[::2], names[1::2]), start=1):
        torch.save({name: tensors[name] for name in own}, folder / f"pytorch_model-0000{number}-of-00002.bin")
    with pytest.raises(DataError, match=r"`seqloom unpickle .*` makes one from pytorch_model-00001-of-00002\.bin"):
        load_published(folder)
    convert_pickle(folder)
    assert same(load_published(folder).network, whole)


@pytest.mark.parametrize(("mode", "normalise"), [("cls_token", False), ("max_tokens", True), ("mean_tokens", True)])
def test_the_steps_of_a_sentence_encoder(bert: Bert, mode: str, normalise: bool) -> None:
    folder = bert()
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normalise else [])]
    listed = [
        {"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(steps)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    model = load(folder)
    vector = model.embed("a b")
    states = (
        load(folder)
        .network.encode(model._predictor.pad([model._predictor.frame("text", model.tokenizer.encode("a b").ids)]))
        .states[0]
    )
    expected = {"cls_token": states[0], "max_tokens": states.amax(0), "mean_tokens": states.mean(0)}[mode]
    expected = expected / expected.norm() if normalise else expected
    torch.testing.assert_close(torch.from_numpy(vector), expected.detach())


@pytest.mark.parametrize("steps", [[{"type": "x.Dense", "path": "2_Dense"}], {"type": 1}, [3]], ids=range(3))
def test_other_steps_are_refused(bert: Bert, steps: object) -> None:
    folder = bert()
    (folder / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(DataError, match=r"modules\.json"):
        load_published(folder)


def test_an_id_of_minus_one_is_none(bert: Bert) -> None:
    assert same(load_published(bert(bos_token_id=-1, eos_token_id=-1)).network, load_published(bert()).network)


def test_labels_that_share_a_name_are_refused(bert: Bert) -> None:
    folder = bert(architectures=["BertForTokenClassification"], id2label={"0": "B", "1": "B"})
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    head = {"classifier.weight": torch.ones(2, 4), "classifier.bias": torch.ones(2)}
    save_file(tensors | head, folder / "model.safetensors")
    with pytest.raises(DataError, match="id2label: 'B' is the name of several labels"):
        load_published(folder)
