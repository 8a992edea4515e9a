"""The report: one page that works offline, with all tables and figures, each found by clicks as a person makes them."""

from __future__ import annotations

import sys

import browser
import pytest
from small_project import Project, checked

from bflp.reporting.figures import FIGURES

needs_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed")

# Go through the menu, click every eye, and tell what is shown then.
CLICK_ALL = """
const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const links = () => [...document.querySelectorAll("#app a")];
const click = async text => {
  const link = links().find(link => link.textContent.trim() === text);
  if (!link) throw `there is no ${text} among ${links().map(link => link.textContent.trim())}`;
  link.click();
  await wait(50);
};
while (!app) await wait(20);
const shown = [];
for (const category of Object.keys(categories)) {
  const subcategories = Object.keys(categories[category]);
  for (const subcategory of subcategories) {
    app.setView({ navbarMode: "menu" });
    await wait(50);
    await click(category);
    if (subcategories.length > 1) await click(subcategory);
    for (const row of [...document.querySelectorAll("#app tbody tr")]) {
      const [eye, info] = row.querySelectorAll("a");
      eye.click();
      await wait(100);
      const image = document.querySelector("#app .p-3 > img"), frame = document.querySelector("iframe");
      let content = null;
      if (image) { await image.decode(); content = image.naturalWidth > 200 ? "figure" : "empty"; }
      if (frame) {
        const page = new DOMParser().parseFromString(await (await fetch(frame.src)).text(), "text/html");
        content = page.querySelectorAll("tbody tr").length || page.querySelector("pre").textContent;
      }
      shown.push({ category, label: row.cells[0].textContent, content });
    }
  }
}
const captions = Object.values(results).map(result => result.caption);
const loaded = performance.getEntriesByType("resource").map(entry => entry.name.slice(0, 60));
return { shown, captions, loaded, text: document.body.textContent.includes("FEDAVG") };
"""

SORT = """
const column = head => [...document.querySelectorAll("tbody tr")].filter(row => !row.hidden).map(
  row => row.cells[Number(head.dataset.column)].textContent.trim());
const head = name => [...document.querySelectorAll("th[data-column]")].find(
  head => head.textContent.trim().startsWith(name));
const accuracy = head("Accuracy"), seed = head("Model");
const before = column(accuracy);
accuracy.firstElementChild.click();
const up = column(accuracy), state = accuracy.ariaSort;
accuracy.firstElementChild.click();
const down = column(accuracy);
seed.firstElementChild.click();
const models = column(seed), cleared = accuracy.ariaSort;
const field = document.querySelector("input");
field.value = "fvbwa ppa";
field.dispatchEvent(new Event("input"));
return { before, up, down, state, models, cleared, filtered: column(seed), scroll: document.body.scrollWidth };
"""


def make_report(project: Project) -> None:
    # Without --cores, as one makes a report of what is there.
    checked(project._run([sys.executable, "-m", "snakemake", "--report", "report.html", "--configfile", "small.yaml"]))


@needs_browser
def test_every_table_and_figure_is_found_by_clicks_and_nothing_is_loaded(finished: Project, tmp_path):
    make_report(finished)
    answer = browser.ask(finished.folder / "report.html", CLICK_ALL, tmp_path)
    assert "error" not in answer, answer
    found = {(entry["category"], entry["label"]): entry["content"] for entry in answer["shown"]}
    drawn = [figure for figure in FIGURES.values() if not figure.needs_sweep]
    figures = {("IID, 2 clients", figure.title): "figure" for figure in drawn}
    assert {key: value for key, value in found.items() if key[0] == "IID, 2 clients"} == figures
    tables = {key[1]: value for key, value in found.items() if key[0] == "Tables"}
    assert tables == {"Results, 2 clients": 6, "Spread of the final posteriors": 4, "Data sets": 1}
    about = {key[1]: value for key, value in found.items() if key[0] == "About this run"}
    settings = about.pop("Settings and versions")
    assert about == {"Cells: final numbers, times and versions": 6, "Times by row of the tables": 6}
    assert "learning_rate: 0.05" in settings and "rounds: 2" in settings
    assert len(found) == len(figures) + 3 + 3
    assert all(answer["captions"])
    assert not [name for name in answer["loaded"] if not name.startswith(("data:", "file:"))]


@needs_browser
def test_tables_sort_and_filter(finished: Project, tmp_path):
    answer = browser.ask(finished.results / "tables/results2.html", SORT, tmp_path)
    assert "error" not in answer, answer
    numbers = [float(text.split()[0]) for text in answer["up"]]
    assert numbers == sorted(numbers) and answer["state"] == "ascending"
    assert [float(text.split()[0]) for text in answer["down"]] == numbers[::-1]
    assert sorted(answer["before"]) == sorted(answer["up"])
    assert answer["models"] == sorted(answer["models"]) and answer["cleared"] is None
    assert answer["filtered"] == ["FVBWA"]


def test_a_change_of_the_figures_code_draws_the_figures_anew_and_nothing_else(finished: Project):
    file = finished.folder / "bflp/reporting/figures/curves.py"
    file.write_text(file.read_text().replace('"Communication round"', '"Round"'))
    assert finished.planned() == {"draw": 1}
    checked(finished.snakemake())
    assert "Round</text>" in (finished.results / "figures/tiny/iid/2/learning_curves.svg").read_text()
    assert finished.planned() == {}


def test_report_of_a_run_that_has_not_finished_says_what_is_missing(finished: Project):
    (finished.results / "figures/tiny/iid/2/spread.svg").unlink()
    done = finished.snakemake("--report", "report.html")
    assert done.returncode != 0
    assert "spread.svg" in done.stdout + done.stderr
