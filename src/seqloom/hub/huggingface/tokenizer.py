"""The tokeniser of a folder, and the roles of its special tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tokenizers

from seqloom.config.batches import Role
from seqloom.errors import DataError
from seqloom.hub.huggingface.files import read_json, read_lines
from seqloom.hub.huggingface.settings import Settings
from seqloom.text import Tokenizer
from seqloom.text.files import read_specs
from seqloom.text.marian import is_marian
from seqloom.text.roles import ROLES, declare_roles, find_declared, find_roles

_RENUMBERED = ("xlm-roberta", "xlm-roberta-xl", "camembert", "mbart", "pegasus")
_OPTIONS = (
    (
        "normalizer",
        "BertNormalizer",
        {
            "do_lower_case": "lowercase",
            "strip_accents": "strip_accents",
            "tokenize_chinese_chars": "handle_chinese_chars",
        },
    ),
    ("pre_tokenizer", "ByteLevel", {"add_prefix_space": "add_prefix_space"}),
)
"""For a part of a tokenizer.json, its kind, and the options of tokenizer_config.json by their names there."""


def read_tokenizer(folder: Path, settings: Settings) -> Tokenizer:
    """The tokeniser in tokenizer.json or a SentencePiece model, or one built from older files."""
    kind = settings.get("model_type")
    if kind in _RENUMBERED and not (folder / "tokenizer.json").is_file():
        raise DataError(
            f"{folder}: has no tokenizer.json, and the ids of {kind} are not those of its SentencePiece model; "
            "transformers writes one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    written = _read_specs(folder)
    if not (folder / "tokenizer.json").is_file():
        written = tuple(_add_tokens(folder, spec) for spec in written)
    specs = (_fill_roles(_obey_options(folder, json.loads(spec)), settings) for spec in written)
    source, *target = (Tokenizer(json.dumps(spec, ensure_ascii=False)) for spec in specs)
    return source.with_target(target[0]) if target else source


Frame = dict[str, list[str]]
"""The roles of the tokens before and after a text."""


@dataclass(frozen=True)
class TextFrames:
    """The special tokens that a tokeniser puts around texts."""

    text: Frame
    second: Frame | None
    """Around the second text of a pair; None where the first of two is framed in another way than a single text."""
    parts: Literal["one", "two", "other"]
    """Whether the second text and the tokens after it are of a part of their own (`token_type_ids`)."""


def find_frames(folder: Path, tokenizer: Tokenizer, prefer: Sequence[Role] = ()) -> TextFrames | None:
    """What the post-processor in tokenizer.json adds; None where there is none.

    `prefer` are the roles to choose from first where a token has several.
    """
    path = folder / "tokenizer.json"
    processor = tokenizers.Tokenizer.from_file(str(path)).post_processor if path.is_file() else None
    if processor is None:
        return None
    probe = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    probe.post_processor = processor
    single, pair = probe.encode("a"), probe.encode("a", "a")
    if len(single) == 1 and find_declared(json.loads(path.read_bytes())["post_processor"]):
        return None  # it only says what tokens are for
    if single.sequence_ids.count(0) != 1 or [id for id in pair.sequence_ids if id is not None] != [0, 1]:
        raise DataError(f"{path}: its post-processor does not keep texts as they are")
    place, first, second = single.sequence_ids.index(0), pair.sequence_ids.index(0), pair.sequence_ids.index(1)
    before, after = single.ids[:place], single.ids[place + 1 :]
    lead, last = pair.ids[first + 1 : second], pair.ids[second + 1 :]

    def name(ids: Sequence[int]) -> list[str]:
        return [_name_role(tokenizer, id, (*prefer, *ROLES), path) for id in ids]

    alike = pair.ids[:first] == before and lead[: len(after)] == after
    apart = [int(at > first + len(after)) for at in range(len(pair))]
    return TextFrames(
        {"before": name(before), "after": name(after)},
        {"before": name(lead[len(after) :]), "after": name(last)} if alike else None,
        parts="one" if not any(pair.type_ids) else "two" if pair.type_ids == apart else "other",
    )


def tells_parts(folder: Path) -> bool:
    """Whether the tokeniser tells the model which of two texts a token is of; it does unless it says otherwise."""
    names = _read_options(folder).get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def refuse_languages(folder: Path) -> None:
    """Refuse the tokeniser of a model that is told the languages of source and target."""
    path, config = folder / "tokenizer_config.json", _read_options(folder)
    told = [key for key in ("src_lang", "tgt_lang") if config.get(key) is not None]
    if str(config.get("tokenizer_class")).startswith("MBart"):
        told.append("tokenizer_class")
    if told:
        raise DataError(
            f"{path}: {told[0]}: {config[told[0]]!r}: the model translates between languages that are named by tokens "
            "before the source and the target; Seqloom does not put them there yet, so its answers would be wrong"
        )


def _name_role(tokenizer: Tokenizer, id: int, roles: Sequence[Role], path: Path) -> str:
    """What a token around a text is for."""
    for role in roles:
        if getattr(tokenizer.roles, role) == id:
            return role
    token = tokenizer.token(id) if id < tokenizer.vocab_size else f"token {id}"
    raise DataError(
        f"{path}: puts {token} beside each text, which is none of the special tokens that Seqloom knows "
        f"({', '.join(ROLES)}); tokens for the language of a text are not supported"
    )


def find_frame(folder: Path, tokenizer: Tokenizer) -> Frame:
    """The roles of the tokens around a text of a language model: an end, and a beginning if the tokeniser adds one.

    Without a tokenizer.json, tokenizer_config.json says so, and a SentencePiece model (LLaMA's) has one by default.
    """
    frames, stated = find_frames(folder, tokenizer, ("bos", "eos")), _read_options(folder).get("add_bos_token")
    if frames is not None:
        return {"before": frames.text["before"], "after": ["eos"]}
    begins = any(folder.glob("*.model")) if stated is None else stated
    built = not (folder / "tokenizer.json").is_file()
    return {"before": ["bos"] if built and begins else [], "after": ["eos"]}


def _read_options(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json; empty where there is none."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _obey_options(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """A tokeniser with the options of tokenizer_config.json, which change what tokenizer.json says.

    They belong to the classes of BERT, GPT-2 and RoBERTa; a general class has none.
    """
    options, general = _read_options(folder), ("PreTrainedTokenizerFast", "TokenizersBackend")
    if (folder / "tokenizer.json").is_file() and options.get("tokenizer_class") in general:
        return spec
    for part, kind, keys in _OPTIONS:
        if isinstance(spec.get(part), dict) and spec[part].get("type") == kind:
            given = {ours: options[theirs] for theirs, ours in keys.items() if isinstance(options.get(theirs), bool)}
            spec = {**spec, part: {**spec[part], **given}}
    return spec


def _add_tokens(folder: Path, spec: str) -> str:
    """A tokeniser with the tokens that were added to it later, which older files list by themselves."""
    path, listed = folder / "added_tokens.json", _read_options(folder).get("added_tokens_decoder")
    added: dict[str, tuple[Any, dict[str, Any]]] = {}
    added |= {name: (id, {}) for name, id in read_json(path).items()} if path.is_file() else {}
    for id, token in (listed if isinstance(listed, dict) else {}).items():
        if isinstance(token, dict) and isinstance(token.get("content"), str) and str(id).isdecimal():
            added[token["content"]] = int(id), token
    library = tokenizers.Tokenizer.from_str(spec)
    known = library.get_vocab(with_added_tokens=True)
    missing = {name: value for name, value in added.items() if name not in known}
    for name, (id, token) in sorted(missing.items(), key=lambda pair: str(pair[1][0]).zfill(12)):
        flags = {key: token.get(key) is True for key in ("lstrip", "rstrip", "single_word", "normalized", "special")}
        library.add_tokens([tokenizers.AddedToken(name, **flags)])
        if library.token_to_id(name) != id:
            found = library.token_to_id(name)
            raise DataError(f"{folder}: {name!r} was added as token {id}, but the next free id is {found}")
    return str(library.to_str()) if missing else spec


def _read_specs(folder: Path) -> tuple[str, ...]:
    if (folder / "tokenizer.json").is_file() or any(folder.glob("*.model")) or is_marian(folder):
        return read_specs(folder)
    if (folder / "vocab.txt").is_file():
        return (_build_wordpiece(folder),)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return (_build_bytes(folder),)
    raise DataError(f"{folder}: has no tokeniser: no tokenizer.json, *.model, vocab.txt or merges.txt")


def _fill_roles(spec: dict[str, object], settings: Settings) -> dict[str, object]:
    """Add the roles that only the model's configuration gives, by id."""
    library = tokenizers.Tokenizer.from_str(json.dumps(spec))
    roles: dict[Role, str] = find_roles(spec)
    configured: tuple[Role, ...] = ("pad", "bos", "eos")
    for role in configured:
        names = [name for id in settings.tokens(f"{role}_token_id") if (name := library.id_to_token(id)) is not None]
        # An answer ends with what the configuration names, whatever the tokeniser calls its end.
        if names and (role not in roles or (role == "eos" and roles["eos"] not in names)):
            roles[role] = names[0]
    ids = {role: id for role, name in roles.items() if (id := library.token_to_id(name)) is not None}
    return declare_roles(spec, {role: roles[role] for role in ids}, ids)


def _build_wordpiece(folder: Path) -> str:
    """BERT's tokeniser: split at spaces and punctuation, then into the longest pieces of `vocab.txt`."""
    vocab = {token: number for number, token in enumerate(read_lines(folder / "vocab.txt")) if token}
    if "[UNK]" not in vocab:
        raise DataError(f"{folder / 'vocab.txt'}: has no [UNK]; it is not a BERT vocabulary")
    try:
        model = tokenizers.models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{folder / 'vocab.txt'}: is not a vocabulary: {error}") from None
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens([token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in vocab])
    return str(made.to_str())


def _build_bytes(folder: Path) -> str:
    """GPT-2's tokeniser: byte-level BPE, merged in the order of `merges.txt`."""
    try:
        model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{folder}: vocab.json and merges.txt do not make a tokeniser: {error}") from None
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    known = ("<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    made.add_special_tokens(
        [
            tokenizers.AddedToken(token, lstrip=token == "<mask>", normalized=False, special=True)  # RoBERTa's
            for token in known
            if made.token_to_id(token) is not None
        ]
    )
    return str(made.to_str())
