"""Checks of the instances of clouds: which questions may be asked, and what would allow the others."""

from collections.abc import Iterator
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cluster_check import check_instances
from loadfactor.collect.discovery.source_check import CheckedSources
from loadfactor.interfaces.pages.sources_check import build_document
from loadfactor.interfaces.render.terminal import render_text


def answer_in_part() -> Iterator[tuple[str, str]]:
    """One question is allowed, one is not."""
    yield "instances", ""
    yield "spot prices", "may not ec2:DescribeSpotPriceHistory; add a line"


def fail() -> Iterator[tuple[str, str]]:
    """The client is not installed."""
    raise InputError("boto3 is not installed")
    yield


def test_what_may_not_be_asked_is_said_and_is_no_failure(tmp_path: Path) -> None:
    """Each question with yes or no; books without these rows are a gap, so that the answer of `check` stays as it is."""
    found = check_instances({"ec2 prod": answer_in_part, "ec2 other": fail})
    assert [(one.name, [said.works for said in one.questions]) for one in found] == [
        ("ec2 prod", [True, False]),
        ("ec2 other", [False]),
    ]
    page = build_document(CheckedSources((), instances=tuple(found), clouds=("cloudwatch prod",)), tmp_path)
    text = " ".join(render_text(page, 100).split())
    assert not page.is_no
    for said in ("ec2 prod", "may not ec2:DescribeSpotPriceHistory; add a line", "boto3 is not installed"):
        assert said in text
