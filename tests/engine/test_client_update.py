"""Local training against a plain loop: torch.optim.SGD, autograd, the network in standard layers."""

import math

import pytest
import torch

from bflp.engine.augment import augment
from bflp.engine.client import client_update
from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Gaussian, Local
from bflp.engine.settings import CellSettings, PosteriorSettings, Training
from bflp.networks.lenet import LeNet, LeNetLayout
from bflp.networks.posterior import Posterior
from bflp.rng import torch_generator
from tests.oracles.plain import LeNet as PlainLeNet

SEED, ROUND, CLIENT = ADDRESS = (11, 4, 2)
SAMPLES = 21  # three batches of 8, the last one of 5
TRAINING = {"local_epochs": 2, "batch_size": 8, "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}


def make(variational, enforce="clamp", bounds=(-8.0, 8.0), dtype=torch.float64, prior=(0.0, 1.0)):
    """(layout, posterior, initial vector, images, labels); log variances on both sides of the lower bound."""
    layout = LeNetLayout((1, 16, 16), 3, variational)
    generator = torch.Generator().manual_seed(0)
    vector = layout.initial_vector(0.0, generator).to(dtype)
    log_variances = vector[layout.log_variances]
    log_variances.uniform_(*((bounds[0] - 2, -1) if enforce == "clamp" else bounds), generator=generator)
    images = torch.randint(0, 256, (SAMPLES, 1, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (SAMPLES,), generator=generator)
    return layout, Posterior(*prior, bounds, enforce), vector, images, labels


def settings(variational, posterior, augmentation=None, seed=SEED, **training):
    """Of a cell, of which only local training counts here."""
    gaussian = PosteriorSettings("variational", 0.0, 1.0, -9.0, posterior.bounds, posterior.enforce, "dense")
    return CellSettings(
        seed=seed,
        clients=1,
        fraction=1.0,
        rounds=1,
        weights="equal",
        training=Training(**{**TRAINING, **training}),
        every=1,
        monte_carlo_samples=1,
        augment=augmentation,
        posterior=gaussian if variational else None,
        aggregator="none",
        aggregation="exact",
    )


def update(network, vector, images, labels, chosen, round_=ROUND, client=CLIENT):
    trained = client_update(network, vector, images, labels, chosen, round_, client)
    return trained.vector, trained.loss


def plain_training(layout, posterior, vector, images, labels, training, augmentation=None):
    """Shuffling and noise from the same addresses; everything else by other means."""
    network = PlainLeNet(layout, posterior)
    network.load_vector(layout, vector)
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=training["learning_rate"],
        momentum=training["momentum"],
        weight_decay=training["weight_decay"],
    )
    shuffling = torch_generator(ADDRESS[0], "shuffling", ADDRESS[1], ADDRESS[2])
    noises = torch_generator(ADDRESS[0], "training noise", ADDRESS[1], ADDRESS[2])
    crops = torch_generator(ADDRESS[0], "augmentation", ADDRESS[1], ADDRESS[2])
    losses = []
    for _ in range(training["local_epochs"]):
        order = torch.randperm(len(labels), generator=shuffling)
        noise = torch.randn((len(labels), 120 + 84 + layout.labels), generator=noises) if layout.variational else None
        for start in range(0, len(labels), training["batch_size"]):
            rows = order[start : start + training["batch_size"]]
            batch = images[rows].float() / 255
            if augmentation:
                batch = augment(batch, **augmentation, generator=crops)
            batch_noise = None if noise is None else noise[start : start + len(rows)].to(vector)
            loss = network.loss(batch.to(vector), labels[rows], batch_noise, 1 / len(labels))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if posterior.enforce == "project":
                with torch.no_grad():
                    for name, parameter in network.named_parameters():
                        if name.endswith("log_variance"):
                            parameter.clamp_(*posterior.bounds)
            losses.append(loss.item())
    parameters = dict(network.named_parameters())
    return torch.cat([parameters[name].detach().flatten() for name in layout.tensors]), sum(losses) / len(losses)


def relative_distance(layout, found, expected, start):
    """Largest distance over the three stretches of the vector, each relative to how far it should move."""
    stretches = (layout.deterministic, layout.means, layout.log_variances)[: 3 if layout.variational else 1]
    distances = []
    for stretch in stretches:
        moved = (expected[stretch] - start[stretch]).norm()
        assert moved > 1e-3 * start[stretch].norm()
        distances.append(float((found[stretch] - expected[stretch]).norm() / moved))
    return max(distances)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["float64", "float32"]
)
@pytest.mark.parametrize(("variational", "enforce"), [(False, "clamp"), (True, "clamp"), (True, "project")], ids=str)
def test_against_a_plain_loop(variational, enforce, dtype, tolerance):
    layout, posterior, vector, images, labels = make(variational, enforce, (-4.0, 2.0), dtype, prior=(0.1, 0.7))
    network = LeNet(layout, posterior, "cpu")
    start = vector.clone()
    found, loss = update(network, vector, images, labels, settings(variational, posterior))
    expected, expected_loss = plain_training(layout, posterior, vector, images, labels, TRAINING)
    assert relative_distance(layout, found, expected, start) < tolerance
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert torch.equal(vector, start)


def test_against_a_plain_loop_with_augmentation():
    layout, posterior, vector, images, labels = make(False)
    augmentation = {"crop_padding": 2, "flip_probability": 0.5}
    network = LeNet(layout, posterior, "cpu")
    found, _ = update(network, vector, images, labels, settings(False, posterior, augmentation))
    expected, _ = plain_training(layout, posterior, vector, images, labels, TRAINING, augmentation)
    assert relative_distance(layout, found, expected, vector) < 1e-10
    plain, _ = plain_training(layout, posterior, vector, images, labels, TRAINING)
    assert relative_distance(layout, plain, expected, vector) > 1e-3


@pytest.mark.parametrize("variational", [False, True])
def test_momentum_starts_at_rest_and_adds_to_the_second_step(variational):
    """With one batch of all samples: a second step with momentum differs by 0.9 of the first from one without."""
    layout, posterior, vector, images, labels = make(variational)
    network = LeNet(layout, posterior, "cpu")

    def after(steps, momentum):
        whole_batch = settings(variational, posterior, batch_size=10**9, local_epochs=steps, momentum=momentum)
        return update(network, vector, images, labels, whole_batch)[0]

    first = after(1, 0.9) - vector
    assert torch.equal(after(1, 0.0) - vector, first)
    torch.testing.assert_close(after(2, 0.9) - after(2, 0.0), 0.9 * first, rtol=1e-9, atol=1e-12)


def test_clamped_log_variances_below_the_bound_feel_weight_decay_only():
    layout, posterior, vector, images, labels = make(True)
    vector[layout.log_variances] = -9.0
    network = LeNet(layout, posterior, "cpu")
    found, _ = update(network, vector, images, labels, settings(True, posterior, momentum=0.0, local_epochs=1))
    # Three steps of decay by the factor 1 - 0.05 * 0.01.
    torch.testing.assert_close(
        found[layout.log_variances], torch.full_like(found[layout.log_variances], -9 * 0.9995**3), rtol=1e-12, atol=0
    )


def test_an_algorithms_prior_passes_no_gradient_at_the_bounds():
    layout, posterior, vector, images, labels = make(True, bounds=(-4.0, 2.0))
    log_variances = vector[layout.log_variances]
    log_variances[::2], log_variances[1::2] = -4.0, 2.0
    local = Local(prior=Gaussian(torch.full_like(log_variances, 2.0), 0 * log_variances))
    chosen = settings(True, posterior, weight_decay=0.0)
    found = client_update(LeNet(layout, posterior, "cpu"), vector, images, labels, chosen, 1, 0, local=local).vector
    assert torch.equal(found[layout.log_variances], log_variances)
    assert not torch.equal(found[layout.means], vector[layout.means])


def test_projected_log_variances_stay_within_the_bounds_and_leave_them():
    bounds = (-3.0, -2.9)
    layout, posterior, vector, images, labels = make(True, "project", bounds)
    vector[layout.log_variances] = -3.0
    network = LeNet(layout, posterior, "cpu")
    found, _ = update(network, vector, images, labels, settings(True, posterior, local_epochs=6))
    log_variances = found[layout.log_variances]
    assert log_variances.min() >= bounds[0]
    assert log_variances.max() <= bounds[1]
    assert (log_variances == bounds[1]).any()  # pushed against the other bound, from where a clamp learns nothing


def test_the_address_decides_the_randomness():
    layout, posterior, vector, images, labels = make(True)
    network = LeNet(layout, posterior, "cpu")

    def of(seed, round_, client):
        return update(network, vector, images, labels, settings(True, posterior, seed=seed), round_, client)[0]

    assert torch.equal(of(1, 2, 3), of(1, 2, 3))
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not torch.equal(of(1, 2, 3), of(*other))


def test_nothing_is_kept_from_one_client_to_the_next():
    layout, posterior, vector, images, labels = make(True)
    network = LeNet(layout, posterior, "cpu")
    first, _ = update(network, vector, images, labels, settings(True, posterior))
    update(network, first, images[:6], labels[:6], settings(True, posterior, seed=0), 9, 9)
    again, _ = update(network, vector, images, labels, settings(True, posterior))
    assert torch.equal(first, again)


@pytest.mark.parametrize("variational", [False, True])
def test_a_huge_learning_rate_diverges(variational):
    layout, posterior, vector, images, labels = make(variational, dtype=torch.float32)
    network = LeNet(layout, posterior, "cpu")
    with pytest.raises(NotFiniteError, match="not finite"):
        update(network, vector, images, labels, settings(variational, posterior, learning_rate=1e20))


def test_a_loss_that_is_not_finite_is_noticed_with_finite_parameters():
    """The last step's loss can overflow before a parameter does."""
    layout, posterior, vector, images, labels = make(True, dtype=torch.float32)
    posterior = Posterior(0.0, 1e-19, posterior.bounds, "clamp")
    network = LeNet(layout, posterior, "cpu")
    with pytest.raises(NotFiniteError, match=r"the loss is (nan|inf)"):
        update(
            network,
            vector,
            images,
            labels,
            settings(True, posterior, batch_size=99, local_epochs=1, learning_rate=1e-45),
        )


def test_mean_loss_is_that_of_all_steps():
    """At learning rate 1e-30 the model stands still: three equal batches' losses average to the whole loss."""
    layout, posterior, vector, images, labels = make(False)
    network = LeNet(layout, posterior, "cpu")
    _, loss = update(network, vector, images, labels, settings(False, posterior, batch_size=7, learning_rate=1e-30))
    plain = PlainLeNet(layout, posterior)
    plain.load_vector(layout, vector)
    assert loss == pytest.approx(plain.loss(images.to(vector) / 255, labels, None, 0.0).item(), rel=1e-6)
    assert loss == pytest.approx(math.log(3), rel=0.2)
