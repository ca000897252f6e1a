"""Settings in force: what was set and where, and no secret."""

from pathlib import Path

import pytest

from loadfactor.settings.config import FILE, choose_file
from loadfactor.settings.in_force import DEFAULT, list_in_force

WRITTEN = """
timezone = "Europe/Berlin"
[[prometheus]]
url = "https://me:hidden@prometheus.example:9090/key/hidden"
[alerts]
link = "https://pages.example"
[[alerts.receiver]]
kind = "slack"
url = "https://hooks.slack.example/T0/hidden"
[[budget]]
amount = 1000.5
"""


def test_settings_say_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, the environment or nobody; of addresses the host alone is shown."""
    path = tmp_path / FILE
    path.write_text(WRITTEN)
    monkeypatch.setenv("LOADFACTOR_IDLE_BELOW", "0.1")
    try:
        found = {s.name: (s.value, s.origin) for s in list_in_force(choose_file(path))}
    finally:
        choose_file(Path(FILE))
    assert found["timezone"] == ("Europe/Berlin", str(path))
    assert found["idle_below"] == ("0.1", "LOADFACTOR_IDLE_BELOW")
    assert found["memory"][1] == DEFAULT
    assert found["prometheus[1].url"] == ("https://prometheus.example:9090/…", str(path))
    assert found["alerts.receiver[1].url"] == ("https://hooks.slack.example/…", str(path))
    assert found["alerts.link"] == ("https://pages.example", str(path))
    assert found["budget[1].amount"][0] == "1000.5"
    assert found["budget[1].thresholds_percent"][0] == "[50, 80, 100]"
    assert "hidden" not in str(found)
