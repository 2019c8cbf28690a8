"""The `[train]` table: how long, how fast, and what is kept."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, Tag, model_validator

from seqloom.config.base import Names, NonNegative, Positive, Rate, Section, chosen_by, from_word

PositiveFloat = Annotated[float, Field(gt=0.0)]
BUDGETS = ("epochs", "steps", "tokens", "minutes")
"""The keys that say how long to train, of which a configuration has one."""


class AdamW(Section):
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    """The highest rate of the schedule; unless given, `size` decides."""
    beta1: Rate = 0.9
    """The memory of the mean gradient."""
    beta2: Rate = 0.98
    """The memory of its square."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """How much of each matrix is taken away, in proportion to the rate."""


class Muon(Section):
    """Orthogonalised momentum for the matrices between layers, AdamW for all the rest. Jordan et al. 2024."""

    kind: Literal["muon"] = "muon"
    matrix_rate: PositiveFloat = 0.02
    """The highest rate for the matrices between layers."""
    momentum: Rate = 0.95
    """The memory of the mean gradient of those matrices."""
    learning_rate: PositiveFloat = 4e-3
    """The highest rate for embeddings, vectors and the output layer."""
    beta1: Rate = 0.9
    """AdamW's memory of the mean gradient."""
    beta2: Rate = 0.98
    """AdamW's memory of its square."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """How much of each matrix is taken away, in proportion to the rate."""


Optimizer = Annotated[
    Annotated[AdamW, Tag("adamw")] | Annotated[Muon, Tag("muon")],
    chosen_by("kind", "muon"),
    from_word,
]


class Adapters(Section):
    """The size of low-rank adapters."""

    rank: Positive = 8
    """How many numbers each matrix is adapted by, a row and a column."""
    alpha: PositiveFloat = 16.0
    """How much an adapter counts, divided by the rank."""


Clock = Literal["wall", "processor"]


class Amount(NamedTuple):
    """How long to train: a number, and of what."""

    number: float
    unit: str

    def __str__(self) -> str:
        return f"{self.number:,.12g} {self.unit if self.number != 1 else self.unit.removesuffix('s')}"


class TrainConfig(Section):
    """How to train. The budget is one of steps, epochs, tokens and minutes; without any it is 10 epochs, or as many as
    make 1,000 steps."""

    seed: NonNegative = 1
    """Everything random follows from it; the same seed on the same machine gives the same weights."""
    epochs: PositiveFloat | None = Field(None, examples=[10.0])
    """Stop after this many passes over the data; if no budget is given, 10, or as many as make 1,000 steps."""
    steps: Positive | None = Field(None, examples=[5000])
    """Stop after this many updates."""
    tokens: Positive | None = Field(None, examples=[10_000_000])
    """Stop after this many tokens were predicted."""
    minutes: PositiveFloat | None = Field(None, examples=[10.0])
    """Stop after this much time; the schedule fits itself to the clock."""
    clock: Clock = "wall"
    """What minutes and speeds are measured by: the clock on the wall, or the time that the processor works for this
    training, all threads together, whatever else the machine does meanwhile. The latter is for processors only."""
    optimizer: Optimizer = Muon()
    """muon or adamw; with `init` adamw unless given."""
    schedule: Literal["stable-decay", "linear", "cosine", "inverse-sqrt", "plateau", "constant"] = "stable-decay"
    """After the warm-up: flat and then down to zero over the last 40%; down from the start; halved whenever two
    validations in a row bring nothing better (plateau); or flat."""
    warmup: NonNegative | None = Field(None, examples=[200])
    """Steps over which the rate rises from zero; unless given, the first 5% of the budget, but at most 200 steps."""
    clip: PositiveFloat = 1.0
    """The longest gradient; a longer one is scaled down to it."""
    label_smoothing: Rate = 0.1
    """The share of probability that targets give to all other answers."""
    accumulate: Positive = 1
    """Into how many parts a batch is cut to save memory; the update is the same."""
    validate_every: Positive | None = Field(None, examples=[500])
    """Steps between two validations; unless given, a tenth of the budget, but 10 to 500 steps, or at most 5 minutes."""
    save_every: Positive | None = Field(None, examples=[500])
    """Steps between two checkpoints; unless given, as between two validations. The best one is saved in any case."""
    keep: Annotated[int, Field(ge=2)] = 3
    """How many checkpoints are kept, besides the best one and the last one before the rate goes down."""
    snapshots: NonNegative = 8
    """How many snapshots of the weights are kept to look inside, evenly spaced from the start of the training to its
    end, each as large as the model; 0 is none."""
    judge_by: str | None = Field(None, examples=["loss"])
    """What says which checkpoint is best: the loss, or any metric that `seqloom eval` prints for the task, such as
    chrf or macro_f1; otherwise BLEU, accuracy or Pearson's correlation where there is one, or the loss."""
    patience: Positive | None = Field(None, examples=[5])
    """Stop when this many validations in a row brought nothing better."""
    ema: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Judge and keep a running average of the weights, with this memory, such as 0.999; 0 is none."""
    average: NonNegative = 0
    """At the end, average the weights of this many of the last checkpoints; 0 takes the best one."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    """Numbers to multiply matrices in; the short ones pay only where the hardware has them. auto takes bfloat16 on a
    processor that has instructions for it, else float32; a run that was begun goes on in what it took."""
    sharding: Literal["none", "full"] = "none"
    """What each of several processes holds: all weights, or its piece of all weights, gradients and moments."""
    compile: bool = False
    """Compile the feed-forward networks (torch.compile): slower to start, on some machines faster to run."""
    recompute: bool = False
    """Compute each layer again for its gradient instead of keeping its intermediate values: less memory, more time."""
    freeze: Names = ()
    """Parts that keep the weights of `init`, by the beginning of their names, such as "embedding" or "encoder"."""
    adapters: Adapters | None = Field(None, examples=[{"rank": 8}])
    """Low-rank adapters: everything taken over from `init` is frozen, and small matrices beside it are trained."""
    threads: NonNegative = 0
    """Processor threads to compute with; 0 is one for each core."""

    @property
    def budget(self) -> Amount | None:
        """How long to train, if that is given."""
        given = ((getattr(self, name), name) for name in BUDGETS)
        return next((Amount(number, name) for number, name in given if number is not None), None)

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are two budgets; keep one of them")
        return self
