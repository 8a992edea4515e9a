"""How many training samples of each label each client holds."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.ticker import MaxNLocator

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block


@style.styled()
def draw(block: Block) -> Any:
    """Below: samples by client and label, as shades (white: none). Above: all samples of each client."""
    counts = block.label_counts
    labels = 10 if counts is None else counts.shape[1]
    figure, (upper, lower) = plt.subplots(
        2,
        1,
        figsize=(style.FULL_WIDTH, 2.4 + min(3.0, 0.14 * labels)),
        sharex=True,
        gridspec_kw={"height_ratios": [1, 2]},
    )
    style.heading(figure, block.title, f"training samples with seed {block.label_seed}")
    lower.set_xlabel("Client")
    lower.set_ylabel("Label")
    upper.set_ylabel("Samples")
    if counts is None:
        style.empty_panel(lower, "no partition yet")
        style.without_ticks(*figure.axes)
        return figure
    clients = np.arange(len(counts))
    upper.bar(clients, counts.sum(axis=1), width=0.8, color="0.45")
    upper.grid(axis="x", visible=False)
    lower.grid(visible=False)
    # One hue from light to dark, which a grey print keeps; a label that a client lacks stays white.
    image = lower.imshow(
        np.ma.masked_equal(counts.T, 0),
        cmap=ListedColormap(plt.get_cmap("Blues")(np.linspace(0.15, 1, 256))),
        # The square root's scale: a few large counts would make all others look alike.
        norm=PowerNorm(0.5, vmin=0, vmax=max(1, int(counts.max()))),
        aspect="auto",
        interpolation="nearest",
        origin="lower",
    )
    lower.spines[["top", "right"]].set_visible(True)
    for axis in (lower.xaxis, lower.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=20 if axis is lower.xaxis else 10, min_n_ticks=1))
    figure.colorbar(image, ax=lower, label="Samples", pad=0.01, aspect=15, ticks=MaxNLocator(5, integer=True))
    return figure
