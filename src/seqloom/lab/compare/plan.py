"""The plan of a comparison: everything that can go wrong before a training is found out here, and said.

One preparation serves all trainings that read the same data in the same way: the tokeniser is learned once and the
records are encoded once, and each run begins with links to them.

    runs/compare/NAME/prepared/…                  tokenisers and encoded records
    runs/compare/NAME/recurrent-seed-1/           an ordinary run
    runs/compare/NAME/recurrent-seed-1.json       what its model answered, and how well
    runs/compare/NAME/recurrent-seed-1.log        what its training said
    runs/compare/NAME/compare.md, .svg, .json     the table and the picture
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import quote

from seqloom import __version__
from seqloom.config.dump import dump
from seqloom.data.corpus import Split, open_split
from seqloom.data.files import STDIN
from seqloom.errors import ConfigError, SeqloomError
from seqloom.files import hash_file
from seqloom.lab.compare.fitting import fit
from seqloom.lab.compare.grid import Cell, Grid, read_grid
from seqloom.lab.compare.widths import Width, count_weights, name_widths, refuse_fixed, solve
from seqloom.predict.evaluate import check_metrics
from seqloom.predict.scorecard import UNLIKE
from seqloom.runs.run import TrainingRun
from seqloom.tasks import Task
from seqloom.tasks.base import Judge
from seqloom.tasks.configuration import apply_override, load, read_text, read_toml
from seqloom.text import Tokenizer
from seqloom.text.files import find_files
from seqloom.training.prepare import open_config, prepare

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """What a user asks for."""

    config: Path
    overrides: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    seeds: int = 3
    shares: str | None = None
    match_weights: bool = False
    out: Path | None = None
    metric: str | None = None
    tokenized: bool = False

    @property
    def folder(self) -> Path:
        """Where everything goes: by default beside the configuration file, as runs do."""
        return self.config.parent / "runs" / "compare" / self.config.stem if self.out is None else self.out

    @property
    def command(self) -> str:
        """The command line that asks for it, without its folder."""
        given = {"seeds": self.seeds, "data-share": self.shares, "metric": self.metric}
        flags = {"match weights": self.match_weights, "tokenized": self.tokenized}
        parts = ["seqloom compare", quote(self.config.name), *(f"--over {quote(one)}" for one in self.over)]
        parts += [f"--{name} {value}" for name, value in given.items() if value is not None]
        return " ".join([*parts, *(f"--{flag}" for flag, on in flags.items() if on), *map(quote, self.overrides)])


@dataclass(frozen=True)
class Trial:
    """One training: a cell with a seed. It is sent to the process that trains it."""

    cell: Cell
    seed: int
    config: str
    overrides: tuple[str, ...]
    folder: str
    """The folder of the run; names of files are absolute, since another machine may read them."""
    prepared: str
    key: str
    """Differs whenever the result would."""
    split: Split
    metric: str
    tokenized: bool
    version: str = __version__

    @property
    def outcome(self) -> Path:
        """The file of the result."""
        return Path(f"{self.folder}.json")

    @property
    def log(self) -> Path:
        """What the training says."""
        return Path(f"{self.folder}.log")

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclass
class Plan:
    """All trainings, and what is known about them before they begin."""

    wish: Wish
    grid: Grid
    task: Task
    """Of the first cell."""
    trials: list[Trial] = field(default_factory=list)
    widths: dict[str, Width] = field(default_factory=dict)
    """By the title of a cell."""
    records: dict[str, list[int]] = field(default_factory=dict)
    """By the name of a cell: how many records each seed trains on."""
    notes: list[str] = field(default_factory=list)
    lower_is_better: bool = False
    """Of the metric."""


@dataclass(frozen=True)
class _Preparation:
    folder: Path
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    fingerprint: str
    records: int


class Planner:
    """Makes a plan; `say` is told what is being done."""

    def __init__(self, wish: Wish, say: Say) -> None:
        self.wish, self.say = wish, say
        self._base, self._tokenizers = wish.config.parent, dict[str, Path]()

    def make(self) -> Plan:
        """Check, prepare, solve for widths; nothing is trained."""
        wish = self.wish
        grid, start = read_grid(wish.over, wish.shares), self._check(load(wish.config, wish.overrides))
        self._refuse_stdin(start)
        split: Split = "test" if start.data.test else "valid"
        if split == "valid" and not (start.data.valid or start.data.valid_fraction):
            raise ConfigError(
                f"{wish.config}: there are neither test nor validation data to judge by; name files in data.test, or "
                "set data.valid_fraction = 0.1"
            )
        changes, left_out = self._fit_all(grid, type(start))
        tasks = {title: self._open(given, title, quiet=at > 0) for at, (title, given) in enumerate(changes.items())}
        first = next(iter(tasks.values()))
        plan = Plan(wish, grid, first)
        for title, task in tasks.items():
            if _list_judged(task, split) != _list_judged(first, split):
                raise ConfigError(f"{title}: would be judged by other records than the first cell; compare on the same")
        plan.notes += left_out
        idle = [sentence for task in tasks.values() for sentence in task.describe_idle_keys()]
        plan.notes += [f"{sentence}." for sentence in dict.fromkeys(idle)]
        ready = {title: self._prepare(task) for title, task in tasks.items()}
        metric = self._choose_metric(plan, tasks, ready)
        self._find_widths(plan, tasks, ready, changes)
        self._list_trials(plan, changes, split, metric)
        if split == "valid":
            plan.notes.append(
                "There are no test data, so the validation data judge. They have also chosen each run's checkpoint, so "
                "the numbers are a little too good."
            )
        return plan

    def _fit_all(self, grid: Grid, root: type[Task]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """The overrides of each combination of values, and sentences about the keys that some do not have."""
        changes: dict[str, tuple[str, ...]] = {}
        left_out: list[str] = []
        for cell in grid.cells:
            if cell.title not in changes:
                written = read_toml(read_text(self.wish.config), str(self.wish.config))
                for override in self.wish.overrides:
                    apply_override(written, override)
                fitted = fit(root, written, grid.set_values(cell))
                changes[cell.title] = tuple(fitted.overrides)
                with _named(cell.title):  # before the data of any cell are read
                    load(self.wish.config, (*self.wish.overrides, *fitted.overrides))
                left_out += [one for one in fitted.left_out if one not in left_out]
        return changes, left_out

    def _open(self, changes: Sequence[str], name: str, *, quiet: bool = False) -> Task:
        """The configuration of a cell; its data are checked."""
        say: Say = (lambda _: None) if quiet else self.say
        given = (*self.wish.overrides, *changes)
        with _named(name):
            return self._check(open_config(self.wish.config, given, self.wish.folder / "prepared", say))

    def _check(self, config: object) -> Task:
        if not isinstance(config, Task):
            raise ConfigError(
                f"{self.wish.config}: word vectors have no metric to compare by; compare models that use them"
            )
        if not config.metrics(()):
            raise ConfigError(f"{self.wish.config}: {config.task} has no metric to compare by")
        return config

    def _refuse_stdin(self, task: Task) -> None:
        splits: tuple[Split, ...] = ("train", "valid", "test")
        for split in splits:
            if any(STDIN in corpus.files() for corpus in open_split(task.data, split, self._base)):
                raise ConfigError(f"data.{split}: standard input can be read only once; name a file")

    def _prepare(self, task: Task) -> _Preparation:
        """The tokeniser and the encoded records for a configuration; what another cell has made is used."""
        whole = task.data.model_copy(update={"train_share": 1.0})
        read = _digest(dump(whole), repr(task.tokenizer), repr(task.init))
        part = (task.data.train_share, task.train.seed if task.data.train_share < 1.0 else 0)
        folder = self.wish.folder / "prepared" / _digest(read, repr(part))
        if read in self._tokenizers and not find_files(folder / "tokenizer.json"):
            folder.mkdir(parents=True, exist_ok=True)
            for file in find_files(self._tokenizers[read] / "tokenizer.json"):
                shutil.copy(file, folder / file.name)
        say: Say = (lambda _: None) if read in self._tokenizers else self.say
        made = prepare(task, self._base, folder, say)
        self._tokenizers.setdefault(read, folder)
        return _Preparation(folder, made.tokenizer, made.labels, made.fingerprint, len(made.records["train"]))

    def _choose_metric(self, plan: Plan, tasks: dict[str, Task], ready: dict[str, _Preparation]) -> str:
        task, labels = plan.task, next(iter(ready.values())).labels
        metrics = {metric.name: metric for metric in task.metrics(labels)}
        if self.wish.metric is not None:
            check_metrics([self.wish.metric], list(metrics))
        judge = Judge(task, labels).name
        name = self.wish.metric or (judge if judge in metrics else next(iter(metrics)))
        if len(self._tokenizers) > 1:
            changing = [
                axis.key for axis in plan.grid.axes if axis.key.startswith(("tokenizer", "size", "init", "data"))
            ]
            texts = f"The cells do not share one tokeniser, because {' and '.join(changing)} changes it"
            if name in UNLIKE and self.wish.metric is None and "bits_per_byte" in metrics:
                name = "bits_per_byte"
            warning = "" if name not in UNLIKE or name == "bits_per_byte" else f"; {name} is no fair measure then"
            plan.notes.append(f"{texts}{warning}.")
        plan.lower_is_better = metrics[name].lower_is_better
        return name

    def _find_widths(
        self, plan: Plan, tasks: dict[str, Task], ready: dict[str, _Preparation], changes: dict[str, tuple[str, ...]]
    ) -> None:
        """Count the weights of each cell and, if wanted, change its width so that they are as many as the first's."""
        for title, task in tasks.items():
            made = ready[title]
            stack = getattr(task.model, "encoder", None) or task.model.decoder
            plan.widths[title] = Width(stack.model_dim, count_weights(task, made.tokenizer, made.labels))
            if not self.wish.match_weights:
                continue
            refuse_fixed(task, {axis.key for axis in plan.grid.axes})
            wanted, keys = next(iter(plan.widths.values())).weights, name_widths(task)
            if plan.widths[title].weights != wanted:
                count = partial(self._count, (*changes[title], f"size={task.size}"), keys, made)
                plan.widths[title] = solve(wanted, count, title)
                changes[title] += tuple(f"{key}={plan.widths[title].model_dim}" for key in keys)

    def _count(self, changes: Sequence[str], keys: Sequence[str], made: _Preparation, dim: int) -> int | None:
        """The weights of a cell with another width; None if it is not allowed."""
        try:
            config = load(self.wish.config, (*self.wish.overrides, *changes, *(f"{key}={dim}" for key in keys)))
            return count_weights(self._check(config), made.tokenizer, made.labels)
        except ConfigError:
            return None

    def _list_trials(self, plan: Plan, changes: dict[str, tuple[str, ...]], split: Split, metric: str) -> None:
        """Seed by seed, so that a table of few seeds is there early."""
        wish, grid = self.wish, plan.grid
        judged = _hash_judged(plan.task, split, self._base)
        for number in range(wish.seeds):
            seed = plan.task.train.seed + number
            for cell in grid.cells:
                given = [*changes[cell.title], f"train.seed={seed}"]
                given += [f"data.train_share={cell.share:g}"] if grid.shares != (1.0,) else []
                task = self._open(given, cell.name, quiet=True)
                made = self._prepare(task)
                plan.records.setdefault(cell.name, []).append(made.records)
                trial = Trial(
                    cell,
                    seed,
                    str(wish.config.resolve()),
                    (*wish.overrides, *given),
                    str((wish.folder / cell.name_folder(seed)).resolve()),
                    str(made.folder.resolve()),
                    _digest(_dump_result(task), made.fingerprint, judged, metric, str(wish.tokenized)),
                    split,
                    metric,
                    wish.tokenized,
                )
                if (Path(trial.folder) / "config.toml").exists():
                    TrainingRun(trial.folder, writes=False).record_config(task)  # refuses another configuration
                plan.trials.append(trial)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which cell is at fault."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}" if name else str(error)) from None


def make_plan(wish: Wish, say: Say) -> Plan:
    """The plan of a comparison, or an error that says what is wrong."""
    try:
        return Planner(wish, say).make()
    except SeqloomError:
        with_nothing = wish.folder / "prepared"
        if with_nothing.is_dir() and not any(path != with_nothing for path in wish.folder.iterdir()):
            shutil.rmtree(wish.folder)  # a comparison that never began leaves nothing behind
        raise


def _list_judged(task: Task, split: Split) -> object:
    """What says which records judge."""
    data = task.data
    return (data.train, data.valid_fraction) if split == "valid" and data.valid_fraction else getattr(data, split)


def _hash_judged(task: Task, split: Split, base: Path) -> str:
    files = [file for corpus in open_split(task.data, split, base) for file in corpus.files()]
    return json.dumps([hash_file(Path(file)) for file in files])


def _dump_result(task: Task) -> str:
    """What the result depends on; where and on how many threads it is computed makes no difference that counts."""
    return dump(task.model_copy(update={"train": task.train.model_copy(update={"threads": 0, "device": "auto"})}))


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def link_preparation(trial: Trial) -> None:
    """Put the tokeniser and the encoded records into the folder of a run that has not begun."""
    run, prepared = Path(trial.folder), Path(trial.prepared)
    if (run / "config.toml").exists():
        return
    checks = prepared.parent / "data" / "checks"
    for source, target in ((prepared, run), (checks, run / "data" / "checks")):
        for file in sorted(source.rglob("*")):
            there = target / file.relative_to(source)
            if file.is_file() and not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                _link(file, there)


def _link(file: Path, there: Path) -> None:
    """A second name for a file, or a copy of it; nothing ever writes into these files."""
    try:
        there.hardlink_to(file)
    except OSError:
        shutil.copy(file, there)


def use_threads(trial: Trial, threads: int) -> Trial:
    """The same training on a number of threads."""
    return replace(trial, overrides=(*trial.overrides, f"train.threads={threads}"))
