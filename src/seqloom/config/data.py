"""The `[data]` table: where the records of each split are, in which format, and which faults stop the training.

A split is one corpus or several; the key `format` says which kind of files a corpus has:

    [data.train]                        [[data.train]]
    format = "parallel"                 format = "tsv"
    source = "train.de"                 files = "extra.tsv"
    target = "train.en"                 columns = {source = 1, target = 2}
                                        weight = 0.5

Names of files are relative to the folder of the configuration file. A name may be a file, a pattern such as
`part-*.txt.gz`, a folder (every file in it), or `-` for standard input; gzip, xz and bzip2 are recognised by content.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from seqloom.config.base import LanguageTag, Names, Positive, Rate, Section
from seqloom.config.checks import Checks

SourceUnit = Literal["sentence", "line"]
Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
"""A column by its name in the header, or by its number, counted from 1."""


class CorpusSection(Section):
    """What every corpus has. A subclass is a format: `data/corpus.py` says what reads it."""

    if TYPE_CHECKING:
        format: str

    weight: Annotated[float, Field(gt=0.0, le=1000.0)] = 1.0
    """How often an epoch sees each record: 2 is twice, 0.5 is half of the records, another half in the next epoch."""

    lists: ClassVar[tuple[str, ...]]
    """The keys that list files."""

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """The files by the key that lists them; with several keys, their files correspond line by line."""
        return {key: files for key in self.lists if (files := getattr(self, key))}

    def replace_files(self, files: Sequence[str]) -> "CorpusSection":
        """The same corpus in other files: one for each key."""
        keys = list(self.sides)
        if len(keys) != len(files):
            raise ValueError(f"{len(files)} files were given; give {len(keys)}: {', '.join(keys)}")
        return self.model_copy(update={key: (file,) for key, file in zip(keys, files, strict=True)})


class Listed(CorpusSection):
    """A corpus with one list of files."""

    lists = ("files",)
    files: Annotated[Names, Field(min_length=1)]
    """Files, patterns or folders, read in this order; the files of a pattern or folder in the order of their names."""

    def replace_files(self, files: Sequence[str]) -> CorpusSection:
        """The same corpus in other files, any number of them."""
        return self.model_copy(update={"files": tuple(files)})


class Table(Listed):
    """A table: `columns`, which each subclass has, says which column holds what."""

    @property
    def named_columns(self) -> dict[str, Column]:
        """The columns by role, those not asked for left out."""
        columns: Section = self.columns  # type: ignore[attr-defined]
        return {role: column for role, column in columns if column is not None}


class TextColumns(Section):
    """Which column holds the text."""

    text: Column = "text"
    """The column of the text."""


class PairColumns(Section):
    """Which columns hold the two sides of a pair."""

    source: Column = "source"
    """The column of the text to translate from."""
    target: Column = "target"
    """The column of the text to translate to."""


class LabelColumns(Section):
    """Which columns hold the text and its label."""

    text: Column = "text"
    """The column of the text."""
    second: Column | None = Field(None, examples=["second"])
    """The column of the second text, when a record is a pair of texts."""
    label: Column = "label"
    """The column of the label."""


class TagColumns(Section):
    """Which keys hold the list of words and the list of their tags."""

    words: Column = "words"
    """The key of the list of words."""
    tags: Column = "tags"
    """The key of the list of tags, one for each word."""


class TextFiles(Listed):
    """Plain text: each line is a record."""

    format: Literal["text"] = "text"
    """Lines of text."""


class ParallelFiles(CorpusSection):
    """Two lists of files whose lines correspond."""

    lists = ("source", "target", "alignment")
    format: Literal["parallel"] = "parallel"
    """Line N of the source files belongs to line N of the target files."""
    source: Annotated[Names, Field(min_length=1)]
    """The files to translate from."""
    target: Annotated[Names, Field(min_length=1)]
    """The files to translate to, as many as `source`."""
    alignment: Names = ()
    """Files that say which words belong together, `0-0 1-2`, source and target from 0: attention is guided by them."""


class TaggedFiles(CorpusSection):
    """Two lists of files: words separated by spaces, and as many tags."""

    lists = ("words", "tags")
    format: Literal["parallel"] = "parallel"
    """Line N of the word files belongs to line N of the tag files."""
    words: Annotated[Names, Field(min_length=1)]
    """The files of sentences, words separated by spaces."""
    tags: Annotated[Names, Field(min_length=1)]
    """The files of tags, separated by spaces, as many as `words`."""


class LabelFirstFiles(Listed):
    """Lines of `label text`."""

    format: Literal["label-first"] = "label-first"
    """A label, one space, and the text, as in many published sentence-classification sets."""


class Delimited(Table):
    """A table with one record a row."""

    format: Literal["tsv", "csv"] = "tsv"
    """`tsv`: cells separated by tabs, quotes are text. `csv`: cells separated by commas, quoted as RFC 4180 says."""
    header: bool | None = Field(None, examples=[True])
    """Whether the first row names the columns; when not given, it does if any column is given by name."""
    separator: Literal[",", ";"] | None = Field(None, examples=[";"])
    """What separates the cells of a `csv`; when not given, a semicolon where the first rows show that it is one."""

    @model_validator(mode="after")
    def _only_csv_has_separators(self) -> Self:
        if self.separator is not None and self.format == "tsv":
            raise ValueError('separator: the cells of a tsv are separated by tabs; leave it out, or say format = "csv"')
        return self

    @model_validator(mode="after")
    def _name_needs_header(self) -> Self:
        named = [key for key, column in self.named_columns.items() if isinstance(column, str)]
        if self.header is False and named:
            raise ValueError(
                f"columns.{named[0]} is a name, but header = false says there are none; give its number, from 1"
            )
        return self


class Keyed(Table):
    """Records that name their values themselves."""

    format: Literal["jsonl", "parquet"] = "jsonl"
    """`jsonl`: one JSON object a line; `a.b` finds b inside a. `parquet`: needs the extra `seqloom[parquet]`."""

    @model_validator(mode="after")
    def _key_is_name(self) -> Self:
        for key, column in self.named_columns.items():
            if isinstance(column, int):
                raise ValueError(
                    f'columns.{key} = {column}: {self.format} columns have names; write "{column}" or a name'
                )
        return self


class DelimitedText(Delimited):
    """A table with a column of text."""

    columns: TextColumns = TextColumns()
    """Which column holds the text."""


class DelimitedPairs(Delimited):
    """A table with a source and a target column."""

    columns: PairColumns = PairColumns()
    """Which columns hold source and target."""


class DelimitedLabels(Delimited):
    """A table with a text (or two) and a label."""

    columns: LabelColumns = LabelColumns()
    """Which columns hold text and label."""


class KeyedText(Keyed):
    """Objects with a text."""

    columns: TextColumns = TextColumns()
    """Which key holds the text."""


class KeyedPairs(Keyed):
    """Objects with a source and a target."""

    columns: PairColumns = PairColumns()
    """Which keys hold source and target."""


class KeyedLabels(Keyed):
    """Objects with a text (or two) and a label."""

    columns: LabelColumns = LabelColumns()
    """Which keys hold text and label."""


class KeyedTags(Keyed):
    """Objects with a list of words and a list of tags."""

    columns: TagColumns = TagColumns()
    """Which keys hold words and tags."""


class ConllFiles(Listed):
    """Columns of words and tags, a blank line between sentences, no comments."""

    format: Literal["conll"] = "conll"
    """One word a line: columns separated by tabs if the line has one, else by spaces."""
    words: Positive = 1
    """The number of the column of words, from 1."""
    tags: Positive | Literal["last"] = "last"
    """The number of the column of tags, from 1."""


class ConlluFiles(Listed):
    """CoNLL-U, as the Universal Dependencies are published; ranges (`1-2`) and empty nodes (`1.1`) are no words."""

    format: Literal["conllu"] = "conllu"
    """Ten columns separated by tabs, comments after `#`."""
    words: Literal["form", "lemma"] = "form"
    """Which column holds the words."""
    tags: Literal["upos", "xpos", "feats", "deprel"] = "upos"
    """Which column holds the tags."""


def _corpora(default: str) -> BeforeValidator:
    """One table or a list of them; a table that names no format has the default one."""

    def complete(value: Any) -> Any:
        tables = value if isinstance(value, list | tuple) else [value]
        return tuple({"format": default, **table} if isinstance(table, dict) else table for table in tables)

    return BeforeValidator(complete)


_Format = Field(discriminator="format")
TextCorpora = Annotated[tuple[Annotated[TextFiles | DelimitedText | KeyedText, _Format], ...], _corpora("text")]
"""Plain text unless `format` says otherwise."""
ParallelCorpora = Annotated[
    tuple[Annotated[ParallelFiles | DelimitedPairs | KeyedPairs, _Format], ...], _corpora("parallel")
]
"""Two files unless `format` says otherwise."""
LabelledCorpora = Annotated[
    tuple[Annotated[DelimitedLabels | KeyedLabels | LabelFirstFiles, _Format], ...], _corpora("tsv")
]
"""Tab-separated values unless `format` says otherwise."""
TaggedCorpora = Annotated[
    tuple[Annotated[ConllFiles | ConlluFiles | TaggedFiles | KeyedTags, _Format], ...], _corpora("conll")
]
"""CoNLL columns unless `format` says otherwise."""


_Corpora = TypeVar("_Corpora", bound=tuple[CorpusSection, ...])


class _Data(Section, Generic[_Corpora]):
    """What the data of every task has: its splits, limits, and which findings stop the training."""

    valid_fraction: Rate = 0.0
    """Without `valid`: the share of the training records held out for validation, the same ones every time."""
    train_share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The share of the training records to train on; the seed chooses them, and a larger share contains a smaller
    one. The tokeniser, the labels and the size of the model follow all records."""
    max_line_bytes: Positive = 1 << 20
    """The longest line read into memory; a longer one is an error."""
    max_length: Positive = 10_000
    """The number of characters above which a text is reported as long."""
    max_ratio: Annotated[float, Field(gt=1.0)] = 5.0
    """How much the lengths of a pair may differ from the usual ratio of its corpus before it is reported."""
    checks: Checks = Checks()
    """The severity of each finding."""

    train: Annotated[_Corpora, Field(min_length=1)]
    """What to learn from: one corpus, or several (`[[data.train]]`)."""
    valid: _Corpora = ()  # type: ignore[assignment]
    """What to watch while learning; `data.valid_fraction` can make it from `train`."""
    test: _Corpora = ()  # type: ignore[assignment]
    """What to judge the finished model by; leave it out if there is nothing."""

    def name_files(self, files: Sequence[str]) -> CorpusSection:
        """A corpus of other files, in the format of the training data."""
        return self.train[0].replace_files(files)

    @model_validator(mode="after")
    def _one_validation_split(self) -> Self:
        if self.valid_fraction and self.valid:
            raise ValueError("valid_fraction and valid both make a validation set; remove one of them")
        return self


class TextData(_Data[TextCorpora]):
    """Plain text, for language models of every kind and for word vectors."""


class ParallelData(_Data[ParallelCorpora]):
    """Pairs of texts, for translation and any other text-to-text task."""

    source_language: LanguageTag | None = Field(None, examples=["de"])
    """The language to translate from, as a BCP 47 tag; its rules say where a sentence ends."""
    target_language: LanguageTag | None = Field(None, examples=["en"])
    """The language to translate to, as a BCP 47 tag."""
    source_unit: SourceUnit | None = Field(None, examples=["line"])
    """`sentence`: a text is split into sentences before it is translated. `line`: it is translated as a whole. Absent:
    training chooses `sentence` if fewer than 2% of the training sources have several sentences."""
    alignment_weight: Annotated[float, Field(ge=0.0)] = 0.05
    """How much it counts that attention follows the alignments, where a corpus has some."""

    def name_files(self, files: Sequence[str]) -> CorpusSection:
        """Pairs are two files whose lines correspond, or a table."""
        match self.train[0], files:
            case _, [source, target]:
                return ParallelFiles(source=(source,), target=(target,))
            case ParallelFiles(), [table]:
                return DelimitedPairs(files=(table,), columns=PairColumns(source=1, target=2))
            case corpus, [_]:
                return corpus.replace_files(files)
        raise ValueError(f"{len(files)} files were given; give two, source and target, or one table of pairs")


class LabelledData(_Data[LabelledCorpora]):
    """Texts or pairs of texts, each with a label."""

    labels: Literal["classes", "numbers"] = "classes"
    """`classes`: a label is one of a set of names. `numbers`: a label is a quantity to predict."""


class TaggedData(_Data[TaggedCorpora]):
    """Sentences with a tag for each word."""


Data = TextData | ParallelData | LabelledData | TaggedData
