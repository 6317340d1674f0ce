"""What a verdict must be: read from its file or from the log, compared with what a scenario expects.

Pure but for reading the file; whoever runs programs calls it.
"""
import json
import re
import time

VERDICT_LINE = re.compile(
    r"ncclguard\[\d+\] rank -?\d+ (?:warn|error): (suspect|calls differ|deadline passed|NCCL failed): (\w+): (.*)")


class Failure(Exception):
    pass


class Late(Failure):
    """A bound of time was passed, and what was waited for came all the same: of the machine, perhaps. Whoever runs the
    tests repeats it alone. Anything else that fails is wrong, and never made good by repeating."""


def overdue(what, bound, came):
    """The failure that `what` is, whose `bound` has passed: late where `came()` is true within as long again, else it
    hangs."""
    until = time.monotonic() + bound
    while time.monotonic() < until:
        if came():
            return Late(what)
        time.sleep(0.05)
    return Failure(f"{what}, nor in as long again: it hangs")


class TooLate(Failure):
    """The moment passed before this machine let us act: nothing was shown, good or bad."""


def check(what, got, wanted):
    if got != wanted:
        raise Failure(f"{what} is {got!r}, should be {wanted!r}")


def check_one_of(what, got, wanted, behind=0):
    numbers = [int(number) for number in (wanted if isinstance(wanted, list) else [wanted])]
    if not any(number - behind <= got <= number for number in numbers):
        raise Failure(f"{what} is {got!r}, should be {' or '.join(map(str, numbers))}")


def read_verdict(out):
    try:
        with open(f"{out}/verdict.json") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Failure(f"verdict.json is no JSON: {error}")


def ranks_in(text):
    """The culprits in a line of the log: 'rank 2 (host …' or 'ranks 0,2-4 …'."""
    many = re.match(r"ranks ([\d,-]+)", text)
    one = re.match(r"rank (\d+)", text)
    if one:
        return [int(one[1])]
    ranks = []
    for part in many[1].split(",") if many else []:
        low, _, high = part.partition("-")
        ranks += range(int(low), int(high or low) + 1)
    return ranks


def verdict_of_log(run, level):
    for _, line in list(run.lines):
        found = VERDICT_LINE.match(line)
        if found and found[1] == level:
            return {"kind": found[2], "culprits": [{"rank": rank, "why": ""} for rank in ranks_in(found[3])],
                    "action": None, "line": line}
    return None


def expected_culprits(scenario):
    return sorted(int(rank) for rank in scenario.culprits or [])


def check_names(scenario, what, verdict):
    """Kind and culprits: what must hold for every word that is said about the fault."""
    kinds = scenario.expect if isinstance(scenario.expect, list) else [scenario.expect]
    if verdict["kind"] not in kinds:
        raise Failure(f"{what}: kind is {verdict['kind']!r}, should be {' or '.join(kinds)!r}")
    if scenario.culprits is not None:
        check(f"{what}: culprits", sorted(culprit["rank"] for culprit in verdict["culprits"]),
              expected_culprits(scenario))


def check_verdict(scenario, verdict):
    check_names(scenario, "verdict", verdict)
    culprits = expected_culprits(scenario)
    if scenario.verdict_from == "log":
        return
    check("schema", verdict["schema"], "ncclguard.verdict/1")
    if scenario.op:
        check("op", verdict["op"], scenario.op)
    if scenario.seq is not None:
        check_one_of("seq", verdict["seq"], scenario.seq, getattr(scenario, "behind", 0))
    if scenario.group_nranks is not None:
        check_one_of("group.nranks", verdict["group"]["nranks"], scenario.group_nranks)
    if scenario.confidence:
        check("confidence", verdict["confidence"], scenario.confidence)
    why = scenario.why or ""
    if getattr(scenario, "behind", 0):
        # Who came to its end may still have been in the call before.
        why = re.sub(r" before\b", " (before|inside)", why)
    if not all(re.search(why, culprit["why"]) for culprit in verdict["culprits"]):
        raise Failure(f"why is {[culprit['why'] for culprit in verdict['culprits']]}, should have /{why}/")
    if scenario.waiting == "others":
        check("waiting", verdict["waiting"], [rank for rank in range(scenario.n) if rank not in culprits])
    elif scenario.waiting is not None:
        check("waiting", verdict["waiting"], sorted(int(rank) for rank in scenario.waiting))
    if wanted_action(scenario) != "any":
        check("action", verdict["action"], wanted_action(scenario))


def wanted_action(scenario):
    return scenario.action or scenario.policy
