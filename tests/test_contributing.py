"""What CONTRIBUTING says of parts from outside works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python( file=(\S+))?\n(.*?)```", TEXT, flags=re.DOTALL)


COMMANDS = """
from unskew.cli import app
for words in (
    "simulate world:tiny --user my_parts:Hasty --user-set last=2 --sessions 2 --allow-code --out log",
    "train log --method my_parts:Sharper --set steps=2 --allow-code --out other",
    "evaluate other world:tiny --metrics my_parts:top_grade --allow-code",
    "rank other world:tiny --out ranking.parquet --allow-code --quiet",
):
    app(words.split(), standalone_mode=False)
"""


@pytest.mark.long
def test_a_stranger_adds_a_method_a_user_a_policy_and_a_metric(tmp_path):
    scripts = [code for _, file, code in BLOCKS if not file]
    for _, file, code in BLOCKS:
        if file:
            (tmp_path / file).write_text(code)
    assert len(scripts) == 1
    (tmp_path / "use.py").write_text(scripts[0] + COMMANDS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    found = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "top_grade" in found.stdout
    assert (tmp_path / "model" / "model.json").is_file()
    assert (tmp_path / "ranking.parquet").is_file()
