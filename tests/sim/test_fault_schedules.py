"""The promises hold under random faults. Each number is one pool with its own faults; the same number gives the same run.

Replay one with `pytest tests/sim/test_fault_schedules.py --schedule NUMBER`.
"""

from __future__ import annotations

from fault_schedule import make_schedule, run_schedule


def test_promises_hold_under_random_faults(schedule_number: int) -> None:
    plan = make_schedule(schedule_number)
    run_schedule(plan)
    assert not plan.pool.broken, "\n".join(
        [
            f"schedule {schedule_number} broke {len(plan.pool.broken)} promises "
            f"(replay: pytest tests/sim/test_fault_schedules.py --schedule {schedule_number}):",
            *plan.pool.broken[:10],
            "planned were:",
            *plan.notes,
        ]
    )
