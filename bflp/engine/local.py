"""What a federated algorithm may change in a client's training, and what it gets back. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from bflp.engine.settings import CellSettings, PosteriorSettings, Training

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.networks.layout import Layout

State: TypeAlias = "Mapping[str, Tensor]"  # by name


class Gaussian(NamedTuple):
    """Gaussians per weight by their natural parameters [P], which may be improper: precision, precision * mean."""

    precision: Tensor
    shift: Tensor

    @classmethod
    def prior(cls, posterior: PosteriorSettings, like: Tensor) -> Gaussian:
        """The cell's prior of weights [P]."""
        precision = like.new_full(like.shape, posterior.prior_standard_deviation**-2)
        return cls(precision, precision * posterior.prior_mean)


class Through(NamedTuple):
    """Takes the gradient of the loss elsewhere than at the parameters [D].

    at: gives the point [D] for parameters; back: called with parameters and the gradient by the point, turns it into
    that by the parameters, in place.
    """

    at: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class Local:
    """Changes of the gradient of the mean loss, before momentum, and what to collect besides.

        gradient + constant + pull * (parameters - anchor)

    All vectors [D], or [P] where a client trains plain numbers (posteriors of kind ivon, laplace, swag).

    prior: of the Gaussian weights, instead of the cell's; kl_weight: factor on the divergence from the prior;
    squares: collect the mean of the squared gradients of single samples, at the end; averages_from: collect the mean of
    the iterates of each epoch from this one on (0 is the first); moments_from: collect mean and variance of the
    iterates of all steps from this epoch on; curvature: added to IVON's Hessian [P].

    start: where training begins, instead of the received model [D]; after_step: called with the parameters [D] after
    each step, to train something else in turns with them (it may change, in place, the tensors that are given here);
    sent: what the client sends instead of its parameters [D]; through: where the gradient of the loss is taken, instead
    of at the parameters. The last three are not for posteriors of kind ivon.
    """

    constant: Tensor | None = None
    pull: Tensor | float | None = None
    anchor: Tensor | None = None
    prior: Gaussian | None = None
    kl_weight: float = 1.0
    squares: bool = False
    averages_from: int | None = None
    moments_from: int | None = None
    curvature: Tensor | None = None
    start: Tensor | None = None
    after_step: Callable[[Tensor], None] | None = None
    sent: Tensor | None = None
    through: Through | None = None

    def with_prior(self, prior: Gaussian, samples: int) -> Local:
        """The same for plain numbers [P], of which the prior's log density becomes a part of the mean loss."""
        weight, anchor = self.kl_weight / samples, prior.shift * 0 if self.anchor is None else self.anchor
        return replace(
            self,
            prior=None,
            anchor=anchor,
            pull=weight * prior.precision + (0.0 if self.pull is None else self.pull),
            constant=weight * (prior.precision * anchor - prior.shift)
            + (0.0 if self.constant is None else self.constant),
        )


@dataclass(frozen=True)
class Trained:
    """What local training gives. vector [D]; loss: mean over the steps; squares [D]; averages: one [D] per epoch;
    moments: mean [D] and variance [D] of the iterates."""

    vector: Tensor
    loss: float
    steps: int
    squares: Tensor | None = None
    averages: Sequence[Tensor] = ()
    moments: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Facts:
    """What an algorithm may know besides models and states.

    clients: of the federation, N; share: what a client counts among all clients, n_k / n by data or 1 / N; samples: of
    the client, n_k, and on the server's side of all clients; round: from 1; prior: (mean, precision) of the Gaussian
    weights; initial [D]: the model before the first round; settings: the cell's, but 0 `rounds`, since a cell of more
    rounds goes on from one of fewer; client: its number, None on the server's side.
    """

    layout: Layout
    training: Training
    clients: int
    samples: int
    share: float
    round: int
    prior: tuple[float, float]
    initial: Tensor
    settings: CellSettings
    client: int | None = None


@dataclass(frozen=True)
class Report:
    """A client's part of a round as the server sees it.

    vector [D]: its parameters, [0] where its algorithm sends none; weight: among the round's clients, summing to 1;
    share: among all clients; samples, n_k; steps: of its training; message: what its algorithm sends besides.
    """

    client: int
    vector: Tensor
    weight: float
    share: float
    samples: int
    steps: int
    message: State = field(default_factory=dict)


class Algorithm(Protocol):
    """A file in bflp/algorithms, or a person's own: any of these functions; those that it lacks are FedAvg's.

    local: what changes in a client's training; report: what it sends besides its parameters, and its state after the
    round; server: the new model and the server's state (without it the cell's aggregation rule makes the model).
    A client's or server's state is empty before its first round; of the server's, clients know what they are sent.
    """

    def local(self, model: Tensor, server: State, client: State, facts: Facts, settings: Any) -> Local: ...

    def report(
        self, model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Any
    ) -> tuple[State, State]: ...

    def server(
        self, model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Any
    ) -> tuple[Tensor, State]: ...


class Chosen:
    """A cell's algorithm with its settings; what its file lacks is FedAvg's. module: None for FedAvg itself."""

    def __init__(self, module: Any = None, settings: Any = None) -> None:
        self.module, self.settings = module or SimpleNamespace(), settings

    def local(self, model: Tensor, server: State, client: State, facts: Facts) -> Local:
        """See Algorithm."""
        hook = getattr(self.module, "local", None)
        return hook(model, server, client, facts, self.settings) if hook else Local()

    def report(
        self, model: Tensor, trained: Trained, server: State, client: State, facts: Facts
    ) -> tuple[State, State]:
        """See Algorithm."""
        hook = getattr(self.module, "report", None)
        return hook(model, trained, server, client, facts, self.settings) if hook else ({}, {})

    @property
    def sends_parameters(self) -> bool:
        """Whether clients send their parameters, and not their messages alone."""
        return bool(getattr(self.module, "SENDS_PARAMETERS", True))

    def broadcast(self, server: State) -> State:
        """What clients are sent of the server's state."""
        return {name: server[name] for name in getattr(self.module, "BROADCAST", server)} if server else {}

    @property
    def sparse(self) -> bool:
        """Whether zeros are left out of what is sent."""
        return bool(getattr(self.module, "SPARSE", False))

    @property
    def has_server_step(self) -> bool:
        """Whether it makes the new model itself."""
        return hasattr(self.module, "server")

    def server(self, model: Tensor, reports: Sequence[Report], server: State, facts: Facts) -> tuple[Tensor, State]:
        """See Algorithm."""
        found: tuple[Tensor, State] = self.module.server(model, reports, server, facts, self.settings)
        return found
