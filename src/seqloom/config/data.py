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

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from seqloom.config.base import Names, Positive, Rate, Section
from seqloom.config.checks import Checks

Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
"""A column by its name in the header, or by its number, counted from 1."""


class Weighted(Section):
    """What every corpus has."""

    weight: Annotated[float, Field(gt=0.0, le=1000.0)] = 1.0
    """How often an epoch sees each record: 2 is twice, 0.5 is half of the records, another half in the next epoch."""


class Listed(Weighted):
    """A corpus whose records stand in one list of files."""

    files: Annotated[Names, Field(min_length=1)]
    """Files, patterns or folders, read in this order; the files of a pattern or folder in the order of their names."""


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
    second: Column | None = None
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


class ParallelFiles(Weighted):
    """Two lists of files whose lines correspond."""

    format: Literal["parallel"] = "parallel"
    """Line N of the source files belongs to line N of the target files."""
    source: Annotated[Names, Field(min_length=1)]
    """The files to translate from."""
    target: Annotated[Names, Field(min_length=1)]
    """The files to translate to, as many as `source`."""
    alignment: Names = ()
    """Files that say which words belong together, `0-0 1-2`, source and target from 0: attention is guided by them."""


class TaggedFiles(Weighted):
    """Two lists of files: words separated by spaces, and as many tags."""

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


class Delimited(Listed):
    """A table with one record a row."""

    format: Literal["tsv", "csv"] = "tsv"
    """`tsv`: cells separated by tabs, quotes are text. `csv`: cells separated by commas, quoted as RFC 4180 says."""
    header: bool | None = None
    """Whether the first row names the columns; when not given, it does if any column is given by name."""

    @model_validator(mode="after")
    def _name_needs_header(self) -> Self:
        named = [key for key, column in named_columns(self).items() if isinstance(column, str)]
        if self.header is False and named:
            raise ValueError(
                f"header = false leaves columns.{named[0]} without a name to find; give its number, from 1"
            )
        return self


class Keyed(Listed):
    """Records that name their values themselves."""

    format: Literal["jsonl", "parquet"] = "jsonl"
    """`jsonl`: one JSON object a line; `a.b` finds b inside a. `parquet`: needs the extra `seqloom[parquet]`."""

    @model_validator(mode="after")
    def _key_is_name(self) -> Self:
        for key, column in named_columns(self).items():
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


class CheckedData(Section):
    """What the data of every task has: limits, and which findings stop the training."""

    valid_fraction: Rate = 0.0
    """Without `valid`: the share of the training records held out for validation, the same ones every time."""
    max_line_bytes: Positive = 1 << 20
    """The longest line read into memory; a longer one is an error."""
    max_length: Positive = 10_000
    """The number of characters above which a text is reported as long."""
    max_ratio: Annotated[float, Field(gt=1.0)] = 5.0
    """How much the lengths of a pair may differ from the usual ratio of its corpus before it is reported."""
    checks: Checks = Checks()
    """The weight of each finding."""

    @model_validator(mode="after")
    def _one_validation_split(self) -> Self:
        if self.valid_fraction and self.__dict__.get("valid"):
            raise ValueError("valid_fraction would split off a second validation set; remove it or remove `valid`")
        return self


class TextData(CheckedData):
    """Plain text, for language models of every kind and for word vectors."""

    train: Annotated[TextCorpora, Field(min_length=1)]
    """What to learn from: one corpus, or several (`[[data.train]]`)."""
    valid: TextCorpora = ()
    """What to watch while learning."""
    test: TextCorpora = ()
    """What to judge the finished model by."""


class ParallelData(CheckedData):
    """Pairs of texts, for translation and any other text-to-text task."""

    alignment_weight: Annotated[float, Field(ge=0.0)] = 0.05
    """How much it counts that attention follows the alignments, where a corpus has some."""
    train: Annotated[ParallelCorpora, Field(min_length=1)]
    """What to learn from: one corpus, or several (`[[data.train]]`)."""
    valid: ParallelCorpora = ()
    """What to watch while learning."""
    test: ParallelCorpora = ()
    """What to judge the finished model by."""


class LabelledData(CheckedData):
    """Texts or pairs of texts, each with a label."""

    labels: Literal["classes", "numbers"] = "classes"
    """`classes`: a label is one of a set of names. `numbers`: a label is a quantity to predict."""
    train: Annotated[LabelledCorpora, Field(min_length=1)]
    """What to learn from: one corpus, or several (`[[data.train]]`)."""
    valid: LabelledCorpora = ()
    """What to watch while learning."""
    test: LabelledCorpora = ()
    """What to judge the finished model by."""


class TaggedData(CheckedData):
    """Sentences with a tag for each word."""

    train: Annotated[TaggedCorpora, Field(min_length=1)]
    """What to learn from: one corpus, or several (`[[data.train]]`)."""
    valid: TaggedCorpora = ()
    """What to watch while learning."""
    test: TaggedCorpora = ()
    """What to judge the finished model by."""


Data = TextData | ParallelData | LabelledData | TaggedData
CorpusSection = (
    TextFiles | DelimitedText | KeyedText
    | ParallelFiles | DelimitedPairs | KeyedPairs
    | LabelFirstFiles | DelimitedLabels | KeyedLabels
    | ConllFiles | ConlluFiles | TaggedFiles | KeyedTags
)  # fmt: skip


def named_columns(section: Section) -> dict[str, Column]:
    """The columns of a table by role, those not asked for left out."""
    columns: Section = section.columns  # type: ignore[attr-defined]
    return {role: column for role, column in columns if column is not None}
