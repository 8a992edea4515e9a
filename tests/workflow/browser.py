"""Opening pages in Chromium, without a network: a script runs in the page, and what it answers comes back."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1400,1000",
    "--virtual-time-budget=60000",
)
_WRAPPED = """<script>window.addEventListener("load", async () => {
  const answer = document.createElement("pre");
  answer.id = "answer";
  try { answer.textContent = JSON.stringify(await (async () => { %s })()); }
  catch (error) { answer.textContent = JSON.stringify({ error: String(error) }); }
  document.documentElement.append(answer);
});</script></body>"""


def ask(page: Path, script: str, folder: Path) -> Any:
    """The answer (JSON) of a script, the body of an async function, in a copy of the page that is made in `folder`."""
    assert CHROMIUM is not None
    before, _, after = page.read_text(encoding="utf-8").rpartition("</body>")
    copy = folder / "asked.html"
    copy.write_text(before + _WRAPPED % script + after, encoding="utf-8")
    command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))
