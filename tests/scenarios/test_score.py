#!/usr/bin/env python3
"""The score, the drawing of scenarios and the suite's files: figures that are told are those of the runs."""
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
from harness import draw, pulse, rows, runner, score
from harness.host_rows import Row
from harness.verdicts import Failure, Late, TooLate, overdue


def scenario(**columns):
    return types.SimpleNamespace(**{
        "name": "a n=4", "kind": "fault", "expect": "missing_rank", "culprits": ["2"], "suspect": "1500ms",
        "timeout": "2500ms", "threshold": None, **columns})


def outcome_of(named, ranks, **columns):
    one = score.Outcome(scenario(**columns), "a")
    one.note_verdict({"kind": named, "culprits": [{"rank": rank} for rank in ranks]})
    return one


class Rows(unittest.TestCase):
    def test_members_of_a_family_have_its_columns_and_their_own(self):
        family = {"ranks": [2], "op": "Send", "each": [{"name": "a"}, [{"name": "b", "op": "Recv"}, {"seq": 1}]]}
        self.assertEqual(list(rows.members([{"name": "alone"}, family])), [
            {"name": "alone"}, {"name": "a", "ranks": [2], "op": "Send"},
            {"name": "b", "ranks": [2], "op": "Recv", "seq": 1}])
        with self.assertRaises(SystemExit):
            list(rows.members([{"each": [[{"name": "a", "seq": 1}, {"seq": 2}]]}]))

    def test_the_culprit_is_the_rank_at_the_place_of_the_fault_unless_the_row_says_otherwise(self):
        row = {"name": "a", "program": "b", "at": ["last"]}
        for columns, culprits in (({"expect": "nan"}, ["3"]), ({"expect": "nan", "culprits": ["{first}"]}, ["0"]),
                                  ({"expect": "nan", "culprits": "any"}, None), ({"expect": "nan", "at": [""]}, None),
                                  ({}, None)):
            one, = rows.expand([{**row, "ranks": [4], **columns}])
            self.assertEqual(one.culprits, culprits, columns)

    def test_clocks_run_longer_where_that_is_wanted_and_nothing_else_does(self):
        row = {"name": "a", "program": "b", "timeout": "2500ms", "threshold": "1s", "latest_s": 3.0}
        one = rows.Scenario({**row, "expect": "missing_rank"}, "fault", 4, "first")
        self.assertEqual((one.timeout, one.suspect, one.threshold), ("2500ms", "1500ms", "1s"))
        one.times = 3
        self.assertEqual((one.timeout, one.suspect, one.threshold, one.latest_s), ("7500ms", "4500ms", "3s", 3.0))
        self.assertFalse(one.is_about_making())
        self.assertTrue(rows.Scenario({**row, "expect": "init_mismatch"}, "fault", 4, "first").is_about_making())


class Outcomes(unittest.TestCase):
    def test_the_expected_kind_and_culprits_are_right_and_others_are_not(self):
        for named, culprits, right in (("missing_rank", [2], (True, True)), ("dead_rank", [2], (False, True)),
                                       ("missing_rank", [1], (True, False)), ("missing_rank", [1, 2], (True, False)),
                                       ("unknown", [], (False, False))):
            one = outcome_of(named, culprits)
            self.assertEqual((one.kind_right, one.culprits_right), right, named)

    def test_of_an_attempt_that_was_given_up_nothing_counts(self):
        one = outcome_of("missing_rank", [2])
        one.begin()
        self.assertEqual((one.kind_right, one.culprits_right), (False, False))

    def test_no_verdict_about_a_fault_is_wrong(self):
        one = score.Outcome(scenario(), "a")
        self.assertEqual((one.kind_right, one.culprits_right), (False, False))

    def test_any_of_several_expected_kinds_is_right(self):
        self.assertTrue(outcome_of("dead_rank", [2], expect=["missing_rank", "dead_rank"]).kind_right)

    def test_a_word_about_a_fault_in_a_healthy_run_is_an_alarm(self):
        one = score.Outcome(scenario(kind="healthy", expect=None, culprits=None), "h")
        self.assertTrue(one.kind_right)
        one.note_words([(5.0, "missing_rank")], [])
        self.assertFalse(one.kind_right)

    def test_time_counts_from_the_suspicion_to_the_first_right_word(self):
        one = score.Outcome(scenario(), "a")
        one.note_words([(103.0, "missing_rank"), (101.0, "unknown"), (101.75, "missing_rank")], [100.0])
        self.assertAlmostEqual(one.told_s, 0.25)

    def test_time_counts_from_the_deadline_where_there_is_no_suspicion(self):
        one = score.Outcome(scenario(suspect="0"), "a")
        one.note_words([(103.0, "missing_rank")], [100.0])
        self.assertAlmostEqual(one.told_s, 0.5)

    def test_time_of_a_death_counts_from_the_death(self):
        one = score.Outcome(scenario(expect="dead_rank"), "a")
        one.note_words([(100.4, "dead_rank")], [100.0])
        self.assertAlmostEqual(one.told_s, 0.4)

    def test_a_threshold_of_its_own_holds_for_every_kind(self):
        one = score.Outcome(scenario(expect="dead_rank", threshold="5s"), "a")
        one.note_words([(105.5, "dead_rank")], [100.0])
        self.assertAlmostEqual(one.told_s, 0.5)

    def test_a_word_before_the_fault_is_no_answer_to_it(self):
        one = score.Outcome(scenario(), "a")
        one.note_words([(99.0, "missing_rank")], [100.0])
        self.assertIsNone(one.told_s)

    def test_durations_are_read_as_the_guard_reads_them(self):
        self.assertEqual([score.seconds(text) for text in ("0", "1500ms", "2s", "1m", "1.5h")], [0, 1.5, 2, 60, 5400])


def board(*outcomes):
    about = {"command": "run", "version": "ncclguard", "machine": "here", "date": "today"}
    return score.board_of(list(outcomes), about)


def told(seconds):
    one = outcome_of("missing_rank", [2])
    one.told_s = seconds
    return one


def quiet():
    one = score.Outcome(scenario(kind="healthy", expect=None, culprits=None), "h")
    one.ran_s = 1800.0
    return one


def alarmed():
    one = quiet()
    one.alarms = 1
    return one


class Boards(unittest.TestCase):
    def test_shares_are_of_the_runs_that_could_be_right(self):
        total = board(told(0.1), outcome_of("unknown", []), outcome_of("missing_rank", [], culprits=None),
                      quiet())["totals"]
        self.assertEqual((total["fault_runs"], total["kind_right"], total["kind_right_percent"]), (3, 2, 66.67))
        self.assertEqual((total["culprit_runs"], total["culprit_right"]), (2, 1))

    def test_median_and_worst_of_the_times(self):
        total = board(*[told(seconds / 100) for seconds in range(1, 101)])["totals"]
        self.assertEqual((total["told_median_s"], total["told_p99_s"], total["told_worst_s"]), (0.51, 1.0, 1.0))

    def test_false_alarms_are_counted_in_a_healthy_hour(self):
        total = board(quiet(), alarmed())["totals"]
        self.assertEqual((total["healthy_hours"], total["false_alarms"], total["false_alarms_per_healthy_hour"]),
                         (1.0, 1, 1.0))

    def test_the_confusion_matrix_has_what_was_expected_and_what_was_named(self):
        self.assertEqual(board(told(0), outcome_of("unknown", []), outcome_of("dead_rank", [2], expect=[
            "missing_rank", "dead_rank"]), quiet(), alarmed())["confusion"], {
                "missing_rank": {"missing_rank": 1, "unknown": 1}, "dead_rank": {"dead_rank": 1},
                "nothing": {"nothing": 1, "an alarm": 1}})

    def test_tables_can_be_made_of_any_board(self):
        for one in (board(), board(told(0.1), quiet()), board(alarmed())):
            self.assertIn("false alarms", score.as_text(one))
            self.assertIn("# Scoreboard", score.as_markdown(one))

    def test_tables_are_read_as_they_were_written(self):
        one = board(told(0.1), outcome_of("unknown", []), quiet(), alarmed())
        again = score.read(score.as_markdown(one))
        fields = ("runs", "kind_right", "culprit_right")
        self.assertEqual(again["scenarios"], {name: {field: row[field] for field in fields}
                                              for name, row in one["scenarios"].items()})
        self.assertEqual(again["totals"]["false_alarms_per_healthy_hour"], 1.0)


class Comparing(unittest.TestCase):
    def compare(self, old, new):
        """What is said, whatever the old board was written as."""
        said = score.compare(old, new)
        for text in (json.dumps(old), score.as_markdown(old)):
            self.assertEqual(score.compare(score.read(text), new), said)
        return said

    def test_a_board_is_no_worse_than_itself(self):
        one = board(told(0.1), outcome_of("unknown", []), quiet())
        self.assertEqual(self.compare(one, one), [])

    def test_a_scenario_that_was_right_and_is_wrong_is_named(self):
        said = self.compare(board(told(0.1)), board(outcome_of("dead_rank", [2])))
        self.assertTrue(any(line.startswith("a: the kind was right") for line in said), said)

    def test_wrong_culprits_are_a_regression(self):
        said = self.compare(board(told(0.1)), board(outcome_of("missing_rank", [1])))
        self.assertTrue(any("culprits" in line for line in said), said)

    def test_less_accuracy_is_a_regression_where_it_was_not_perfect_either(self):
        wrong = outcome_of("unknown", [])
        self.assertTrue(self.compare(board(told(0), told(0), wrong), board(told(0), wrong, wrong)))

    def test_a_false_alarm_is_a_regression(self):
        self.assertTrue(self.compare(board(quiet()), board(alarmed())))

    def test_slower_and_better_are_none(self):
        self.assertEqual(self.compare(board(told(0.1)), board(told(9.0))), [])
        self.assertEqual(self.compare(board(outcome_of("unknown", [])), board(told(0.1))), [])

    def test_what_only_one_board_has_is_not_compared(self):
        old = board(told(0.1))
        old["scenarios"]["another"] = old["scenarios"].pop("a")
        self.assertEqual(self.compare(old, board(outcome_of("unknown", []))), [])


class Draws(unittest.TestCase):
    def test_a_seed_draws_the_same_and_another_seed_something_else(self):
        names = [[one.name + one.program for one in draw.draws(seed, 50)] for seed in (7, 7, 8)]
        self.assertEqual(names[0], names[1])
        self.assertNotEqual(names[0], names[2])

    def test_the_first_of_many_are_those_of_few(self):
        self.assertEqual([one.program for one in draw.draws(7, 5)], [one.program for one in draw.draws(7, 50)[:5]])

    def test_every_fault_and_every_program_is_drawn(self):
        drawn = [one.draw for one in draw.draws(1, 1000)]
        self.assertEqual({one["fault"] for one in drawn}, set(draw.FAULTS))
        self.assertEqual({one["program"] for one in drawn}, set(draw.PROGRAMS))

    def test_every_draw_names_ranks_that_there_are(self):
        for one in draw.draws(2, 1000):
            self.assertTrue(all(int(rank) < one.n for rank in one.culprits or []), one.program)
            self.assertNotIn("{", one.program)

    def test_what_fails_is_made_as_small_as_it_still_fails(self):
        class Session:
            pass

        def play(session, one, seen):
            if one.n >= 4 and one.draw["nth"] >= 3:
                raise Failure("as ever")

        choices = {**draw.draw(1, 0), "fault": "hang", "program": "collectives", "n": 8, "r": 5, "s": 1, "nth": 40,
                   "iters": 1000, "pause": 5, "op": "reduce"}
        with tempfile.TemporaryDirectory() as folder:
            path = draw.minimise(Session(), draw.scenario_of(choices, "random/x"), play, f"{folder}/small")
            row, = rows.table_rows(path, ["row"])
        self.assertEqual(row["ranks"], [4])
        self.assertEqual(row["culprits"], ["0"])
        self.assertIn("--op allreduce", row["program"])
        self.assertNotIn("--pause-ms", row["program"])
        self.assertLess(int(re.search(r"--hang 0:(\d+)", row["program"])[1]), 6)
        self.assertEqual(next(rows.expand([row])).expect, "missing_rank")


class Runner(unittest.TestCase):
    def run_all(self, *tasks, **more):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            failed = runner.run_all(list(tasks), 2, lambda: None, **more)
        return failed, said.getvalue()

    def task(self, *ends):
        """One that ends so each time it is tried."""
        left = list(ends)

        def body():
            end = left.pop(0)
            if isinstance(end, Exception):
                raise end
            return end

        return runner.Task("a", body, lambda failure: None, score.Outcome(scenario(), "a"))

    def test_what_fails_is_told_and_returned(self):
        good, bad = self.task("well"), self.task(Failure("badly"))
        failed, said = self.run_all(good, bad)
        self.assertEqual(failed, [bad])
        self.assertEqual((good.outcome.failure, bad.outcome.failure), (None, "badly"))
        self.assertIn("FAIL a: badly", said)

    def test_a_moment_that_was_missed_is_tried_again_and_a_failure_is_not(self):
        late, bad = self.task(TooLate("gone"), "well"), self.task(Failure("badly"), "well")
        self.assertEqual(self.run_all(late, bad)[0], [bad])

    def test_what_is_late_while_the_machine_stood_still_is_tried_again_and_what_is_wrong_is_not(self):
        class Still:
            def longest_since(self, began):
                return 5.6

        bad, never, wrong = (self.task(Late("badly"), "well"), self.task(*[Late("badly")] * 5),
                             self.task(Failure("wrongly"), "well"))
        with unittest.mock.patch.object(runner, "Pulse", Still):
            failed, said = self.run_all(bad, never, wrong)
        self.assertEqual(sorted(map(id, failed)), sorted(map(id, (never, wrong))))
        self.assertIn("FAIL a: wrongly", said)
        self.assertIn("LATE a: badly", said)
        self.assertIn("a, again, since this machine stood still for 5.6 s: badly", said)

    def test_what_comes_after_its_bound_is_late_and_what_never_comes_hangs(self):
        came = iter((False, True))
        self.assertIsInstance(overdue("it came", 5, lambda: next(came)), Late)
        never = overdue("it came", 0.1, lambda: False)
        self.assertNotIsInstance(never, Late)
        self.assertIn("it hangs", str(never))

    def test_only_pauses_of_the_run_itself_count(self):
        watch, began = pulse.Pulse(1e9), time.monotonic()
        self.assertEqual(watch.longest_since(began), 0.0)
        watch.pauses = [(began - 1, 9.0), (began + 1, 2.0), (began + 2, 3.0)]
        self.assertEqual((watch.longest_since(began), watch.longest_since(began + 5)), (3.0, 0.0))

    def test_who_sleeps_too_long_is_noticed(self):
        watch, began = pulse.Pulse(0.0), time.monotonic()
        while not watch.longest_since(began):
            time.sleep(pulse.BEAT_S)

    def test_a_scenario_that_breaks_is_a_failure(self):
        self.assertEqual(len(self.run_all(self.task(KeyError("rank")))[0]), 1)

    def test_nothing_begins_after_the_deadline(self):
        task = self.task("well")
        self.run_all(task, seconds=-1.0)
        self.assertFalse(task.ran)


class Suite(unittest.TestCase):
    """What the public suite promises to cover."""

    @classmethod
    def setUpClass(cls):
        every = rows.suite_rows()
        cls.hosts = [Row(**row) for row in every if rows.on_several_hosts(row)]
        cls.ones = list(rows.expand(row for row in every if not rows.on_several_hosts(row)))
        cls.rows = every

    def test_there_are_sixty_and_fifteen_of_them_healthy(self):
        self.assertGreaterEqual(len(self.rows), 60)
        self.assertGreaterEqual(sum("expect" not in row for row in self.rows), 15)

    def test_a_scenario_is_in_the_file_with_which_its_name_begins(self):
        for file in os.listdir(rows.SUITE):
            for row in rows.table_rows(f"{rows.SUITE}/{file}", ["row"]):
                self.assertEqual(f"{row['name'].split('/')[0]}.toml", file)

    def test_no_scenario_is_in_a_table_as_well(self):
        names = [row["name"] for row in self.rows + rows.table_rows(f"{rows.HERE}/scenarios.toml")]
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_every_kind_of_verdict_is_expected_somewhere(self):
        with open(f"{rows.ROOT}/core/nccl/verdict_kind.def") as file:
            kinds = set(re.findall(r'^NG_VERDICT\(\w+, "(\w+)"', file.read(), re.M)) - {"healthy"}
        expected = set()
        for one in self.ones + self.hosts:
            expected |= set(one.expect if isinstance(one.expect, list) else [one.expect])
        self.assertEqual(kinds - expected, set())

    def test_culprits_are_the_first_the_middle_the_last_and_two_at_once(self):
        places = {(culprit, one.n) for one in self.ones for culprit in map(int, one.culprits or [])}
        for n in (4, 8):
            self.assertLessEqual({(0, n), (n // 2, n), (n - 1, n)}, places)
        self.assertTrue(any(len(one.culprits or []) == 2 for one in self.ones))

    def test_every_collective_and_point_to_point_lacks_a_rank_somewhere(self):
        programs = " ".join(one.program for one in self.ones if one.expect == "missing_rank")
        for word in ("allreduce", "broadcast", "bcast", "reduce", "allgather", "reducescatter", "alltoall", "gather",
                     "scatter"):
            self.assertTrue(word == "allreduce" or f"--op {word} " in programs, word)
        for word in ("p2p_ring", "p2p_pairs", "coll_grouped", "coll_split", "coll_overlap"):
            self.assertIn(word, programs)

    def test_there_are_jobs_of_several_hosts(self):
        self.assertGreaterEqual(len(self.hosts), 10)


if __name__ == "__main__":
    unittest.main()
