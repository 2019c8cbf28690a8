"""The tokeniser of a folder, and the roles of its special tokens."""

import json
from pathlib import Path

import tokenizers

from seqloom.config.batches import Role
from seqloom.errors import DataError
from seqloom.hub.huggingface.files import read_json, read_lines
from seqloom.hub.huggingface.settings import Settings
from seqloom.text import Tokenizer
from seqloom.text.files import read_specs
from seqloom.text.marian import is_marian
from seqloom.text.roles import declare_roles, find_roles


def read_tokenizer(folder: Path, settings: Settings) -> Tokenizer:
    """The tokeniser in tokenizer.json or a SentencePiece model, or one built from older files."""
    specs = (_fill_roles(json.loads(spec), settings) for spec in _read_specs(folder))
    source, *target = (Tokenizer(json.dumps(spec, ensure_ascii=False)) for spec in specs)
    return source.with_target(target[0]) if target else source


def find_frame(folder: Path, tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The roles of the tokens around a text: an end, and a beginning if the tokeniser adds one."""
    frame = {"before": [], "after": ["eos"]}
    path = folder / "tokenizer.json"
    if path.is_file():
        library = tokenizers.Tokenizer.from_file(str(path))
        added = library.encode("", add_special_tokens=True).ids
        if added and added[0] == tokenizer.roles.bos:
            frame["before"] = ["bos"]
    return frame


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
        id = settings.token(f"{role}_token_id")
        name = None if id is None else library.id_to_token(id)
        if role not in roles and name is not None:
            roles[role] = name
    ids = {role: id for role, name in roles.items() if (id := library.token_to_id(name)) is not None}
    return declare_roles(spec, {role: roles[role] for role in ids}, ids)


def _build_wordpiece(folder: Path) -> str:
    """BERT's tokeniser: split at spaces and punctuation, then into the longest pieces of `vocab.txt`."""
    config = folder / "tokenizer_config.json"
    lower = read_json(config).get("do_lower_case", True) is not False if config.is_file() else True
    vocab = {token: number for number, token in enumerate(read_lines(folder / "vocab.txt")) if token}
    if "[UNK]" not in vocab:
        raise DataError(f"{folder / 'vocab.txt'}: has no [UNK]; it is not a BERT vocabulary")
    try:
        model = tokenizers.models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{folder / 'vocab.txt'}: is not a vocabulary: {error}") from None
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
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
    made.add_special_tokens([token for token in known if made.token_to_id(token) is not None])
    return str(made.to_str())
