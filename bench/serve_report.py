"""The tables of bench/serve.py."""

import math
from statistics import median
from typing import Any

from results import draw_table
from serve_load import CLASSES
from serve_peers import TASKS, TOKENS

CLIENTS = (1, 16, 64)
SHARE, GAIN, SPREAD = 0.85, 4.0, 3.0
"""What is wanted at most clients: of the engine's rate; of greedy search by batching; p99 as a multiple of p50."""
MANY = ((8, 1), (32, 1), (32, 4))
"""The cores of a machine, and the machines, of which the arithmetic speaks."""
PERIOD = 10
"""Seconds between two requests of a client who reads what it gets."""
SPARE = 0.7
"""How busy a server should be: beyond it, waiting grows fast."""
Found = dict[str, Any]


def select(found: list[Found], **key: Any) -> list[Found]:
    """The measurements with this key."""
    return [one for one in found if all(one.get(name) == value for name, value in key.items())]


def find_median(found: list[Found], name: str) -> float:
    """The median of a number over the rounds."""
    return median(one[name] for one in found)


def report_peers(found: list[Found], seconds: float, missing: list[str]) -> str:
    """The engine alone, what the server reaches of it, and the contenders at each number of clients."""
    peers = select(found, part="peers")
    if not peers:
        return ""
    rounds = 1 + max(one["round"] for one in peers)
    whole = [
        f"## Serving\n\nRequests of one text of 5 to 40 words each; translation greedy, {TOKENS} tokens forced; "
        f"float32; medians of {rounds} rounds of {seconds:g} s each, in turns. The CPU of the load generator is a "
        "share of one core, and is taken from the server's where cores are few; `less the load` is the share of what "
        "the engine would reach on the rest of the machine. p99/p50 is the largest of the classes of lengths (up to "
        f"{', '.join(map(str, CLASSES))} words). Others used at most {max(one['foreign'] for one in peers):.0%} of the "
        "machine meanwhile.",
        *([f"Not installed here, and so not in the table: {', '.join(missing)}."] if missing else ()),
    ]
    head = ["the engine alone", "texts/s, one at a time", "64 at a time", "gain", "`serve` at 64 clients", "of it"]
    head += ["less the load", "ahead of", "p99/p50"]
    tasks = [
        task for task in TASKS if select(peers, task=task, server="Seqloom") and select(found, part="engine", task=task)
    ]
    whole.append(draw_table(head, [_compare(found, task) for task in tasks]))
    rows = []
    for task, server in dict.fromkeys((one["task"], one["server"]) for one in peers):
        rows += [_describe(peers, task, server, clients) for clients in CLIENTS]
    head = ["task", "server", "clients", "requests/s", "p50", "p99", "p99/p50", "CPU of the load", "same answers"]
    return "\n\n".join([*whole, draw_table(head, [row for row in rows if row])])


def _compare(found: list[Found], task: str) -> list[str]:
    """What the server reaches of the engine's pace, and whom it is ahead of."""
    engine, most = select(found, part="engine", task=task), CLIENTS[-1]
    alone, together = find_median(engine, "alone"), find_median(engine, "together")
    at_most = select(found, part="peers", task=task, clients=most)
    rates = {name: find_median(select(at_most, server=name), "rate") for name in {one["server"] for one in at_most}}
    own = select(at_most, server="Seqloom")
    rate, cores = rates.pop("Seqloom"), own[0]["cores"]
    rest = together * (cores - find_median(own, "load")) / cores
    beaten = [name for name, other in rates.items() if rate > other]
    ahead = "all" if len(beaten) == len(rates) else f"{', '.join(sorted(beaten)) or 'none'}, of {len(rates)}"
    wanted = f" (≥ {GAIN:g})" if task == "translation" else ""
    return [
        *(task, f"{alone:,.1f}", f"{together:,.1f}", f"{together / alone:.1f}{wanted}", f"{rate:,.1f}"),
        *(f"{rate / together:.0%} (≥ {SHARE:.0%})", f"{rate / rest:.0%}", ahead if rates else "nobody there"),
        f"{find_median(own, 'spread'):.1f} (< {SPREAD:g})",
    ]


def _describe(peers: list[Found], task: str, server: str, clients: int) -> list[str]:
    """A line of the table: medians of the rounds."""
    those = select(peers, task=task, server=server, clients=clients)
    if not those:
        return []
    paces = dict.fromkeys(one["pace"] for one in those if one["pace"])
    name = f"{server}, {' or '.join(paces)}" if paces else server
    return [
        *(task, name, str(clients), f"{find_median(those, 'rate'):,.1f}"),
        *(f"{1000 * find_median(those, key):,.0f} ms" for key in ("median", "worst")),
        *(f"{find_median(those, 'spread'):.1f}", f"{find_median(those, 'load'):.0%}", those[0]["equal"]),
    ]


def report_scaling(found: list[Found]) -> str:
    """How far one core, one machine and several reach: measured, then by arithmetic."""
    scaling = select(found, part="scaling")
    if not scaling:
        return ""
    rows, costs = [], {}
    for task, form in dict.fromkeys((one["task"], one["form"]) for one in scaling):
        those = select(scaling, task=task, form=form)
        rate, front, others = (find_median(those, name) for name in ("rate", "front", "others"))
        cost = f"{1000 * (front + others):,.1f} ms"
        if those[0]["workers"] > 1:
            cost += f" ({1000 * front:,.1f} + {1000 * others:,.1f})"
            costs[task] = front, front + others
        load = f"{find_median(those, 'load'):.0%}"
        rows.append([task, form, f"{rate:,.1f}", f"{1000 * find_median(those, 'worst'):,.0f} ms", cost, load])
    head = ["task", "servers", "requests/s", "p99", "CPU of a request (front + workers)", "CPU of the load"]
    whole = [
        f"## How far it goes\n\nMeasured at {CLIENTS[-1]} clients who ask again at once, with the models of "
        "[the comparison](results.md); the load runs on the same machine, and its CPU is a share of one core.",
        draw_table(head, rows),
    ]
    if costs:
        whole += _extrapolate(costs)
    return "\n\n".join(whole)


def _extrapolate(costs: dict[str, tuple[float, float]]) -> list[str]:
    """What more cores and machines reach, with the arithmetic."""
    text = (
        "By arithmetic: a request costs f seconds of CPU in the process that answers, and w in the workers. One server "
        "with c cores answers c / (f + w) requests a second, but never more than 1 / f, since one process answers; "
        "(f + w) / f cores are enough for that. Several servers, behind nginx or on several machines, share nothing: "
        "their rates add up. What is not in it: cores of one machine share its memory, and large models wait for that "
        "first. For what it is worth:"
    )
    head = ["task", "at most, a server", "cores for that"]
    head += [f"{cores} cores" if machines == 1 else f"{machines} machines of {cores}" for cores, machines in MANY]
    rows = []
    for task, (front, whole) in costs.items():
        cells = [reach(front, whole, *each) for each in MANY]
        rows.append([task, f"{1 / front:,.0f}/s", f"{whole / front:,.0f}", *cells])
    clients = (10, 100, 1000)
    needs = [
        [task, *(f"{count / PERIOD * whole / SPARE:,.2f}" for count in clients)] for task, (_, whole) in costs.items()
    ]
    table = draw_table(["task", *(f"cores for {count:,} clients" for count in clients)], needs)
    people = (
        f"People read what they get. A client who asks every {PERIOD} s is {1 / PERIOD:g} requests a second. So n "
        f"clients need n / {PERIOD} × (f + w) cores, divided by {SPARE:g} to leave the server room for a crowd:"
    )
    return [text, draw_table(head, rows), people, table]


def reach(front: float, whole: float, cores: int, machines: int) -> str:
    """Requests a second of machines, each with as many servers as it takes to keep its cores busy; and how many."""
    servers = machines * max(1, math.ceil(cores * front / whole))
    return f"{machines * cores / whole:,.0f}/s{f' by {servers} servers' if servers > 1 else ''}"
