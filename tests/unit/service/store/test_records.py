"""Records come back as they went in, answers as they come."""

import pytest
from sqlalchemy.exc import IntegrityError

from equipoise_evals.model import Answered, PassRecord, Record
from equipoise_service.store import (
    Store,
    StoredRecorder,
)
from tests.unit.service.store.moves import STOP, add, an_answer


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
