"""Prompts and decoding on replicas of their own: each half by its equations, and rows of measurements of it."""

from pathlib import Path

import pytest

from loadfactor.planner.serving.apart import predict_apart, wait_in_loop
from loadfactor.planner.serving.latency import predict_latency, predict_tpot, prompt_time
from loadfactor.planner.serving.step import Replica
from loadfactor.planner.validation.serving import compare_rows, read_sweeps

HEAD = (
    "model,system,backend,mode,isl,osl,tp,ttft_ms,tpot_ms,"
    "prefill_num_workers,prefill_tp_size,decode_num_workers,decode_tp_size,decode_batch_size\n"
)


def test_decoding_alone_takes_steps_without_prompts(llama_8b: Replica) -> None:
    """A token takes a decode step, the first one a prompt and the host; more replicas for prompts shorten their queue."""
    few, many = (predict_apart(llama_8b, n, llama_8b, 1, 64.0, 4096.0, 128.0) for n in (1, 4))
    token = predict_tpot(llama_8b, 64.0, 4096.0, 128.0)
    assert few.tpot_s == pytest.approx(float(token.decode_step_s))
    assert few.tpot_s < 0.8 * float(predict_latency(llama_8b, 64.0, 4096.0, 128.0).tpot_s)
    assert many.ttft_s < 0.5 * few.ttft_s
    alone = predict_apart(llama_8b, 1, llama_8b, 1, 1.0, 4096.0, 128.0)
    assert alone.ttft_s == pytest.approx(float(prompt_time(llama_8b, 4096.0)[0]) + llama_8b.engine.request_s)


def test_a_closed_loop_keeps_its_station_busy() -> None:
    """Few customers do not meet; of many all but those away wait, whatever the order, as one after another they are served."""
    assert wait_in_loop(2, 1.0, 100.0) == pytest.approx(1.0, rel=0.01)
    for customers in (50, 500):
        assert wait_in_loop(customers, 1.0, 10.0) == pytest.approx(customers - 10.0, rel=0.02)


def test_rows_of_both_halves_are_predicted(tmp_path: Path) -> None:
    """Concurrency follows from the decoding replicas; a row that does not say how many there are is refused with the column."""
    rows = tmp_path / "rows.csv"
    row = "llama-3.1-8b,h100-sxm,vllm,disagg,2048,256,,{},{},{},1,2,1,16\n"
    rows.write_text(HEAD + row.format(200, 9, 1) + row.format(200, 9, ""), encoding="utf-8")
    known, refused = compare_rows(read_sweeps(rows), {})
    assert (known.concurrency, known.skipped) == (32, None)
    assert known.layout == "1 × 1 GPU for prompts, 2 × 1 GPU to decode"
    assert known.predicted_tpot_s is not None
    assert known.predicted_ttft_s is not None
    assert 0.004 < known.predicted_tpot_s < 0.02
    assert 0.05 < known.predicted_ttft_s < 2
    assert refused.skipped is not None
    assert "prefill_num_workers" in refused.skipped
