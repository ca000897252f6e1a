"""What loadfactor.toml says of money is understood, and what is wrong in it is one line that says what to write."""

from decimal import Decimal
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.settings.config import Settings, read_settings


def read(folder: Path, text: str) -> Settings:
    """The settings of a file with this text."""
    file = folder / "loadfactor.toml"
    file.write_text(text)
    return read_settings(file)


def test_policies_and_budgets_are_read(tmp_path: Path) -> None:
    """Words, tables of shares and amounts; what is not written keeps waste in pools of its own and held time with its holder."""
    settings = read(
        tmp_path,
        """
        [chargeback]
        mode = "chargeback"
        unallocated = "held hours"
        storage = "apart"
        [chargeback.shared]
        search = 40.5
        research = "59.5"
        [[budget]]
        team = "research"
        amount = 12000.50
        [[budget]]
        project = "llm"
        amount = "1e6"
        period = "year"
        thresholds_percent = [90, 50]
        """,
    )
    policy = settings.chargeback
    assert policy.words == {
        "mode": "chargeback",
        "idle": "holder",
        "unobserved": "holder",
        "unallocated": "held hours",
        "down": "own pool",
        "shared": "fixed shares (research 59.5, search 40.5)",
        "unused_commitment": "own pool",
        "untagged": "own pool",
        "storage": "apart",
        "network": "included",
        "egress": "included",
    }
    research, llm = settings.budget
    assert (research.label, research.amount, research.thresholds_percent) == (
        "research",
        Decimal("12000.5"),
        (50, 80, 100),
    )
    assert (llm.label, llm.amount, llm.period, llm.thresholds_percent) == ("llm", 1_000_000, "year", (50, 90))
    assert hash(policy) == hash(read(tmp_path, (tmp_path / "loadfactor.toml").read_text()).chargeback)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[chargeback]\nidel = "holder"', "no setting called 'idel'; did you mean 'idle'?"),
        ('[chargeback]\nidle = "hodler"', "no way to bear a cost called 'hodler'; did you mean 'holder'?"),
        ('[chargeback]\nshared = "holder"', "nobody holds it; choose from own pool, held hours"),
        ("[chargeback]\nshared = 3", "3 says not who bears it"),
        ("[chargeback.shared]\na = -1\nb = 2", "shares are 0 or more"),
        ("[chargeback.shared]\na = 0", "one of them is above 0"),
        ('[chargeback.shared]\na = "x"', "the share of a is 'x', which is no number"),
        ("[chargeback.shared]\na = true", "the share of a is True, which is no number"),
        ('[chargeback]\nstorage = "no"', "'included' or 'apart'"),
        ('[[budget]]\nteam = "a"', "Field required"),
        ('[[budget]]\namount = "1,000"', "'1,000', which is no number"),
        ("[[budget]]\namount = 0", "greater than 0"),
        ('[[budget]]\nteam = ""\namount = 1', "team or project is empty"),
        ("[[budget]]\namount = 1\nthresholds_percent = [0]", "give percents above 0"),
        ("[[budget]]\namount = 1\nthresholds_percent = 50", "a list of percents"),
        ("[[budget]]\namount = 1\n[[budget]]\namount = 2", "two budgets of everybody for a month; keep one"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    """Each mistake is refused in one line that names the setting or the choice."""
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
