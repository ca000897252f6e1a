"""Settings of jobs, the networks they train, tagging and privacy: the tables [[network]], [tagging] and [privacy]."""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from loadfactor.base.errors import no_such
from loadfactor.settings.table import HomePath, SettingsTable
from loadfactor.tables.tagging_rules import TagRule, check_texts, read_match

DATATYPES: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Datatypes whose dense peak the catalog may know."""
RECOMPUTED: Final = ("none", "selective", "full")
"""Which activations are computed again in the backward pass."""


class JobNetwork(SettingsTable):
    """Which network jobs train, and how: a table [[network]]. Texts may refer to fields of the job: `{env.MODEL}`."""

    match: dict[str, Any] = Field(default={}, description="Which jobs, as in [[tag]]. By default, all.")
    model: str | None = Field(
        default=None, min_length=1, description="A name of the catalog, or a path to a config.json."
    )
    sequence_length: int | str | None = Field(
        default=None, description="Tokens of one sequence that the network is trained on."
    )
    datatype: str | None = Field(
        default=None, description="Datatype of matrix products: its dense peak is that of MFU."
    )
    recompute: str | None = Field(default=None, description="Activations computed again: none, selective, full.")
    packed: bool | None = Field(
        default=None,
        description="Samples are full of tokens, without padding: where a job reports no tokens, each is sequence_length of them.",
    )

    @model_validator(mode="after")
    def _understood(self) -> Self:
        for name, known in (("datatype", DATATYPES), ("recompute", RECOMPUTED)):
            text = getattr(self, name)
            if text is not None and "{" not in text and text not in known:
                raise ValueError(str(no_such(name, text, known)))
        length = self.sequence_length
        if (isinstance(length, int) and length < 1) or (isinstance(length, str) and "{" not in length):
            raise ValueError(f"sequence_length = {length!r} is no number of tokens")
        if not self.gives:
            raise ValueError("a table gives one of model, sequence_length, datatype, recompute and packed")
        _ = self.rule
        return self

    @property
    def gives(self) -> dict[str, str]:
        """Given settings by name."""
        values = {name: getattr(self, name) for name in ("model", "sequence_length", "datatype", "recompute", "packed")}
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def rule(self) -> TagRule:
        """It as a rule, which gives these texts. Raises InputError where it refers to what there is not."""
        conditions = read_match(self.match, "[[network]]")
        check_texts(conditions, self.gives, "[[network]]")
        return TagRule(conditions, tuple(self.gives.items()))


class TaggingSettings(SettingsTable):
    """Where experiment, team, project and purpose of jobs come from besides rules: the table [tagging]."""

    mapping: HomePath | None = Field(default=None, description="CSV that says, with dates, whose jobs were of what.")


class PrivacySettings(SettingsTable):
    """Names of people in the books: the table [privacy]."""

    users: Literal["names", "pseudonyms"] = Field(default="names", description="What stands for users in the books.")
    key_file: HomePath | None = Field(default=None, description="File with the key of pseudonyms.")
