"""Raw records come back as they went in, and a recorder waits for a database that is locked."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from equipoise_evals.model import Answered, AnswerRecord, PassRecord, Record
from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import (
    RecordParts,
    Store,
    StoredRecorder,
)
from tests.support.lost_answers import lose_answer
from tests.support.store import STOP, add


@pytest.mark.sqlite
def test_a_locked_database_is_unavailable_storage_and_a_recorder_waits_for_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison_id = add(store)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    other = sqlite3.connect(tmp_path / "deep" / "equipoise.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="database is locked"):
        store.records.append(comparison_id, STOP)
    assert store.comparisons.get(comparison_id) is not None  # reading goes on
    recorder.append(an_answer(1))
    recorder.append(STOP)
    other.execute("ROLLBACK")
    other.close()
    recorder.flush()
    assert store.records.load(comparison_id) == recorder.records()
    assert [record.kind for record in recorder.records().records] == ["stop", "answer", "stop"]


@pytest.mark.sqlite
def test_a_recorder_whose_patience_ends_says_so(store: Store, tmp_path: Path) -> None:
    recorder = StoredRecorder(store.records, add(store))
    other = sqlite3.connect(tmp_path / "deep" / "equipoise.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder.append(STOP)
    with pytest.raises(StorageUnavailable):
        recorder.flush(0.0)
    other.close()


@pytest.mark.parametrize("kinds", [["stop"], ["stop", "answer", "pass"], ["answer", "answer", "pass", "stop"]])
def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    store: Store, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison_id = add(store)
    store.records.append(comparison_id, STOP)  # an equal record of before is another one
    recorder = StoredRecorder(store.records, comparison_id)
    lose_answer(monkeypatch, RecordParts, "append_all")
    done = PassRecord(pair=1, role="A", answers=(an_answer(1).answer,), duration_s=0.1)
    of: dict[str, Record] = {"stop": STOP, "answer": an_answer(1), "pass": done}
    for kind in kinds:
        recorder.append(of[kind])
    recorder.flush()
    assert store.records.load(comparison_id) == recorder.records()
    recorder.append(STOP)
    assert store.records.load(comparison_id) == recorder.records()


def test_records_that_were_given_up_put_no_later_one_in_doubt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison_id = add(store)
    recorder = StoredRecorder(store.records, comparison_id, patience_s=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(RecordParts, "append_all", unavailable)
        recorder.append(an_answer(1))
        recorder.append(an_answer(2))
        with pytest.raises(StorageUnavailable):
            recorder.flush()
    recorder.append(STOP)
    assert [record.kind for record in store.records.load(comparison_id).records] == ["stop"]


def unavailable(*_: object) -> int:
    raise StorageUnavailable("it cannot be reached")


def test_records_come_back_as_they_went_in(store: Store) -> None:
    comparison_id = add(store)
    answer = Answered(
        question_id=0, text="é\u2028<b>", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )
    records: list[Record] = [STOP, PassRecord(pair=1, role="A", answers=(answer,), duration_s=0.1), STOP]
    for number, record in enumerate(records, 1):
        assert store.records.append(comparison_id, record) == number
    assert list(store.records.load(comparison_id).records) == records
    assert [part.seq for part in store.records.parts(comparison_id, "stop")] == [1, 3]
    texts = [part.payload for part in store.records.parts(comparison_id)]
    assert texts == [record.model_dump_json() for record in records]


def test_more_records_than_one_batch(store: Store) -> None:
    comparison_id = add(store)
    for _ in range(70):
        store.records.append(comparison_id, STOP)
    assert [part.seq for part in store.records.parts(comparison_id)] == list(range(1, 71))


def test_a_recorder_goes_on_after_what_is_stored(store: Store) -> None:
    comparison_id = add(store)
    StoredRecorder(store.records, comparison_id).append(STOP)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    assert recorder.records().records == (STOP, STOP)
    assert recorder.records() == store.records.load(comparison_id)


def an_answer(number: int) -> AnswerRecord:
    answer = Answered(
        question_id=number, text="7", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )
    return AnswerRecord(pair=1, role="A", answer=answer)


def test_every_answer_is_stored_as_it_comes_until_its_pass_takes_its_place(store: Store) -> None:
    comparison_id = add(store)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    answers = [an_answer(number) for number in range(300)]
    for answer in answers:
        recorder.append(answer)
    recorder.flush()
    # Another process, after a kill: everything is there, in order.
    assert StoredRecorder(store.records, comparison_id).records().records == (STOP, *answers)
    whole = PassRecord(pair=1, role="A", answers=tuple(one.answer for one in answers), duration_s=1.0)
    other = an_answer(1).model_copy(update={"role": "B"})
    recorder.append(other)
    recorder.append(whole)
    assert recorder.records().records == (STOP, other, whole)
    assert store.records.load(comparison_id) == recorder.records()
    recorder.append(STOP)
    numbers = [part.seq for part in store.records.parts(comparison_id)]
    assert numbers == sorted(set(numbers))


def test_an_answer_that_cannot_be_stored_is_an_error_and_not_forgotten(store: Store) -> None:
    recorder = StoredRecorder(store.records, "00000000-0000-7000-8000-000000000000")
    recorder.append(an_answer(1))
    with pytest.raises(IntegrityError):
        recorder.flush()


def test_an_answer_that_could_not_be_stored_stops_the_ones_after_it(store: Store) -> None:
    recorder = StoredRecorder(store.records, "00000000-0000-7000-8000-000000000000")

    def go_on() -> None:
        for number in range(10_000):
            recorder.append(an_answer(number))

    with pytest.raises(IntegrityError):
        go_on()


def test_records_of_nothing_are_refused(store: Store) -> None:
    with pytest.raises(IntegrityError):
        store.records.append("00000000-0000-7000-8000-000000000000", STOP)
