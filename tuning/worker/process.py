"""A worker process: the laboratory, its claims, and the threads that supervise both.

It runs in Celery's pool child (``this_worker``) with three threads. The keeper renews leases. The pulse tells
the database that the worker lives, and notices when it should stop. The leader does the periodic work if this
process holds that lease. Only the main thread starts children: they are told to die with the *thread* that
started them.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from django.db import DatabaseError, close_old_connections
from django.db.models import Q
from django.db.models.functions import Now

from catalog import alive
from catalog.conf import conf as catalog_conf
from catalog.context import added_log_fields
from catalog.models import Target as TargetRow
from catalog.registry import register_target
from catalog.steps import step
from opatlas.conf import Misconfigured
from opatlas.identity import Operator, Setting, Target, detect_target
from opatlas.identity.place.cuda import NoDevice, detect_gpus
from opatlas.identity.place.kinds import CPU
from opatlas.memory import total_bytes
from tuning.conf import conf
from tuning.environments import known as environments
from tuning.explore import scratch
from tuning.explore.run import run_slice
from tuning.explore.workshop import Workshop
from tuning.kernels.planning import plan_waiting
from tuning.measure import procfs
from tuning.measure.device.gpus import gpu_named, see_only
from tuning.measure.device.watch import watched
from tuning.measure.laboratory import Laboratory
from tuning.measure.proving import prove
from tuning.measure.timing.lock import DeviceTaken, take_device
from tuning.models import Pause, Worker
from tuning.queue import claims
from tuning.queue.claims import Claim
from tuning.queue.clock import DATABASE_GONE, now_in
from tuning.queue.held import DiskFull, HeldRow, Stopping
from tuning.queue.promote import live_workers, promote_misses
from tuning.queue.rounds import begin_rounds
from tuning.queue.shares import asked_by, charged
from tuning.queue.sharing import Work, WorkTurn
from tuning.routes import registry
from tuning.routes.base import Candidate, Route
from tuning.worker import forerunners, leader, stopping, turns
from tuning.worker.code_reader import CodeReader
from tuning.worker.lease_keeper import Keeper
from tuning.worker.proofs import SLOW, Proofs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tools:
    """A worker's tools for exploring; tests bring their own."""

    routes: tuple[Route, ...]
    default_candidate: Callable[[Operator, Target, Setting], tuple[Route, Candidate] | None]
    laboratory: Callable[[Path, Target], Laboratory]
    target: Callable[[], Target]
    prove: Callable[[Laboratory, Route], str] | None = None  # why a route does not work there; None: all do


def real_tools() -> Tools:
    """Every registered route for this machine's CPU, or for the device that ``OPATLAS_DEVICE`` names; ends
    the process with a sentence if that cannot be served."""
    if conf().device:
        return device_tools(conf().device)
    routes = _routes_for(CPU.name)
    return Tools(routes, registry.default_candidate, Laboratory, detect_target, prove)


def device_tools(name: str) -> Tools:
    """The same for one GPU, the only one that this process sees and serves."""
    try:
        gpu = gpu_named(name)
        see_only(gpu)
        target = detect_gpus()[0]
        take_device(gpu.name, gpu.uuid or gpu.name)
    except (NoDevice, DeviceTaken) as error:
        # No Exception: Celery logs those of its signals' receivers, and goes on without them.
        print(f"This worker cannot serve {name}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(os.EX_CONFIG) from None

    def laboratory(home: Path, target: Target) -> Laboratory:
        return Laboratory(home, target, device=watched(gpu))

    routes = _routes_for(target.kind)
    return Tools(routes, registry.default_candidate, laboratory, lambda: target, prove)


def _routes_for(kind: str) -> tuple[Route, ...]:
    try:
        return registry.routes_for(kind, conf().routes)
    except Misconfigured as error:
        print(f"This worker cannot start, by OPATLAS_ROUTES: {error}", file=sys.stderr, flush=True)
        raise SystemExit(os.EX_CONFIG) from None


DATABASE_PAUSE_S = 1.0  # before work goes on after the database failed
DISK_PAUSE_S = 5.0  # before a worker whose disk is full tries again
LEFT_OUT_S = 60.0  # of work whose turn failed
ENDS_A_RUN = (Stopping, DiskFull, *DATABASE_GONE)
"""Exceptions that are no failure of the current work."""
PART = "worker"  # of a process, as who watches it knows it
LEADER_S = 300.0
"""The longest round of the leader's thread: a worker in which it hangs gives no more signs of life, and its
supervisor restarts it."""


class WorkerProcess:
    """One process that explores. ``name`` is the Celery worker's; a pool child adds its process id."""

    def __init__(self, name: str, tools: Tools) -> None:
        self.name = name[:80]
        self.owner = f"{self.name}/{os.getpid()}"
        self.tools = tools
        self.target = tools.target()
        self.home = catalog_conf().home
        self.keeper = Keeper()
        self._laboratory: Laboratory | None = None
        self._warm = False
        self._target_row: TargetRow | None = None
        self._ended = threading.Event()
        self._doing = ""
        self._led_at = time.monotonic()  # when the leader's thread last began a round, leading or not
        self._environments: dict[str, str] = {}  # route → digest of what it is here
        self._left_out: dict[WorkTurn, float] = {}  # until when, on this process's clock
        self._proofs = Proofs(self.home, self._tell_routes, needed=tools.prove is not None)

    def start(self) -> None:
        """Enter the database, start the threads, and warm the laboratory (seconds)."""
        self._enter_when_possible()
        # This process has taken the place of one that is dead: what that held need not wait for its lease.
        claims.sweep(owner_prefix=f"{self.name}/", but_not=self.owner)
        forerunners.bury(self.name)
        scratch.sweep(self.home)
        self.keeper.__enter__()
        for run in (self._pulse, self._lead):
            threading.Thread(target=run, name=run.__name__.strip("_"), daemon=True).start()
        self._warm_up()
        self._prove_routes(SLOW)
        self._say("")

    def run_until_idle(self) -> int:
        """Claim and explore until nothing is left that this worker can do; returns how many slices ran."""
        slices = 0
        try:
            with step("exploring", raises=ENDS_A_RUN):
                self._warm_up()
                while not stopping.is_asked():
                    close_old_connections()
                    _see_to_queues()
                    if (turn := self._next_turn()) is not None:
                        slices += self._take_turn(turn)
                    elif not self._prove_routes(() if slices or self._revalidates() else SLOW):
                        self._read_code()
                        break
        except Stopping:
            logger.info("Told to stop: claims given back.")
        except DATABASE_GONE as error:
            logger.warning("The database failed (%s): this worker waits to be woken again.", error)
            close_old_connections()
            time.sleep(DATABASE_PAUSE_S)
        except DiskFull as error:
            logger.error("%s Claims given back; this worker waits for room.", error)
            self._say("waits for room: no space is left")
            time.sleep(DISK_PAUSE_S)
        finally:
            self._say(self._unwell()[:200])
        return slices

    def close(self) -> None:
        """Give everything back: claims, children, the leader's lease, the worker's row."""
        self._ended.set()
        try:
            # An evaluation that was begun has been given back by itself, or its lease runs out.
            self._give_back([held for held in self.keeper.held if isinstance(held, Claim)])
            self.keeper.__exit__()
            leader.resign(self.owner)
            Worker.objects.filter(name=self.name, pid=os.getpid()).update(
                stopped_at=Now(), doing="", warm=False
            )
        except DatabaseError as error:
            logger.warning("The database failed while stopping (%s): leases will expire.", error)
        finally:
            if self._laboratory is not None:
                self._laboratory.__exit__(None, None, None)

    @cached_property
    def _code(self) -> CodeReader:
        return CodeReader(self.target_row.pk)

    @property
    def target_row(self) -> TargetRow:
        assert self._target_row is not None, "start() comes first"
        return self._target_row

    def _next_turn(self) -> WorkTurn | None:
        measures = not (self._paused() or self._unwell())
        now = time.monotonic()
        self._left_out = {turn: until for turn, until in self._left_out.items() if now < until}
        left_out = list(self._left_out)
        return turns.turn_for(self.target_row.pk, self._reach(), measures=measures, but_not=left_out)

    def _take_turn(self, turn: WorkTurn) -> int:
        """Do the work whose turn it is. A kind that fails is skipped for a while: others have their turns."""
        slices = -1
        with step(f"taking a turn: {turn.work.name.lower()}", raises=ENDS_A_RUN):
            if turn.work == Work.CONTEST:  # its opening tries nothing by a route that nobody proved
                self._prove_routes(SLOW, self._first_result_waits)
            slices = self._take(turn)
        if slices < 0:
            self._left_out[turn] = time.monotonic() + LEFT_OUT_S
            return 0
        if turn.work != Work.FIRST:  # after one of those the next is waited for
            with step("reading machine code", raises=ENDS_A_RUN):
                self._code.step(self._workshop())
        return slices

    def _take(self, turn: WorkTurn) -> int:
        """Claim the work whose turn it is, and do it; returns how many slices ran."""
        kind = turns.SINGLES.get(turn.work)
        if kind is None:
            return self._run_pack(turn, self._claim(turn))
        held = kind.claim(self.owner, self.target_row.pk, asked_by(turn.organisation, kind.whose))
        if held is None:  # another worker was faster
            return 0
        self.keeper.hold([held])
        try:
            self._say(str(held).lower())
            with charged(turn.organisation, turn.work):
                return int(kind.run(self._workshop(), held))
        finally:
            self.keeper.drop(held)

    def _revalidates(self) -> bool:
        return turns.revalidation_waits(self.target_row.pk)

    def _first_result_waits(self) -> bool:
        turn = self._next_turn()
        return turn is not None and turn.work == Work.FIRST

    def _work_waits(self) -> bool:
        return turns.work_waits(self.target_row.pk, self._reach())

    def _prove_routes(self, but_not: Sequence[str], until: Callable[[], bool] | None = None) -> int:
        """Try routes of unknown state until somebody waits (``until``: anybody, by default); returns how many
        were tried."""
        tried, waits = 0, until or self._work_waits
        for route in self.tools.routes:
            if route.name in but_not or not self._proofs.is_open(route) or not route.available(self.target):
                continue
            if stopping.is_asked() or waits():
                break
            self._say(f"trying the route {route.name}")
            self._proofs.why_not(route)
            tried += 1
        return tried

    def _read_code(self) -> None:
        """Add machine code to bests, until work waits."""
        self._say("reading machine code")
        while self._code.step(self._workshop()):
            if stopping.is_asked() or self._work_waits():
                break

    def _paused(self) -> bool:
        return Pause.objects.filter(capability__in=["*", self.target.capability]).exists()

    def _unwell(self) -> str:
        """Why nothing can be tried on this worker's device any more; it claims nothing until it is
        restarted."""
        device = self._laboratory.device if self._laboratory is not None else None
        return device.unwell if device is not None else ""

    def _claim(self, turn: WorkTurn) -> list[Claim]:
        workers = len(live_workers(self.target_row.pk))
        reach = self._reach() & asked_by(turn.organisation)
        held = claims.claim(self.owner, self.target_row.pk, workers, reach=reach)
        self.keeper.hold(held)
        return held

    def _run_pack(self, turn: WorkTurn, held: list[Claim]) -> int:
        """Run every claimed slice; gives back what was not begun if it must stop or make room."""
        slices = 0
        waiting = list(held)
        try:
            while waiting:
                self._say(f"exploration {waiting[0].pk}")
                with added_log_fields(exploration_id=waiting[0].pk), charged(turn.organisation, turn.work):
                    slices += run_slice(self._workshop(), waiting[0])
                self.keeper.drop(waiting.pop(0))
                if stopping.is_asked() or (waiting and self._gives_way(turn)):
                    break
        finally:
            self._give_back(waiting)
        return slices

    def _gives_way(self, turn: WorkTurn) -> bool:
        return turns.gives_way_to_others(turn, self.target_row.pk, self._reach())

    def _give_back(self, held: list[Claim]) -> None:
        """Release what is still held; if the database is away, the leases run out."""
        for claim in held:
            self.keeper.drop(claim)
        try:
            close_old_connections()
            for claim in held:
                claims.release(claim, begun=False)
        except DATABASE_GONE as error:
            logger.warning("Could not give claims back (%s): their leases will run out.", error)

    def _reach(self) -> Q:
        return environments.reach(self.name, self.target_row.pk, self._environments)

    def _workshop(self) -> Workshop:
        assert self._laboratory is not None
        return Workshop(
            laboratory=self._laboratory,
            routes=self.tools.routes,
            default_candidate=self.tools.default_candidate,
            target=self.target,
            home=self.home,
            worker=self.owner,
            check=self._check,
            reach=self._reach,
            works=self._proofs.why_not,
            proved=self._proofs.reason,
        )

    def _check(self, claim: HeldRow[Any]) -> None:
        if stopping.is_asked():
            raise Stopping
        self.keeper.check(claim)

    def _warm_up(self) -> None:
        """Start the laboratory if it does not run; a failure is logged and tried again with the next work."""
        if self._warm:
            return
        began = time.monotonic()
        if self._laboratory is None:
            self._laboratory = self.tools.laboratory(self.home, self.target)
            self._laboratory.__enter__()
            if self.tools.prove is not None:
                self._proofs.begin(self._laboratory.tier.name, partial(self.tools.prove, self._laboratory))
        routes = tuple(route for route in self.tools.routes if route.available(self.target))
        self._laboratory.warm(routes)
        self._warm = True
        tier = self._laboratory.tier.name
        Worker.objects.filter(name=self.name).update(warm=True, tier=tier)
        self._tell_routes()
        names = ", ".join(route.name for route in routes)
        took_s = time.monotonic() - began
        logger.info("Worker ready: %s, sandbox %s, %s (%.1f s).", self.target.capability, tier, names, took_s)

    def _tell_routes(self) -> None:
        """Write the present state of the routes into the row."""
        routes = self._proofs.facts(self.tools.routes, self.target)
        self._environments = environments.brought(routes)
        Worker.objects.filter(name=self.name).update(routes=routes)

    def _enter_when_possible(self) -> None:
        """Wait for a database that is not there yet."""
        while True:
            try:
                self._target_row = register_target(self.target)
                return self._enter()
            except DATABASE_GONE as error:
                if stopping.is_asked():
                    raise
                logger.warning("No database yet (%s); trying again.", error)
                alive.beat(PART)
                close_old_connections()
                time.sleep(DATABASE_PAUSE_S)

    def _enter(self) -> None:
        """This worker's row: its hardware and abilities, with reasons for what it cannot do."""
        Worker.objects.update_or_create(
            name=self.name,
            defaults={
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "target": self.target_row,
                "memory_bytes": total_bytes(),
                "doing": "starting",
                "warm": False,
                "last_seen_at": Now(),
                "stopped_at": None,
            },
        )
        self._tell_routes()
        self._beat()

    def _say(self, doing: str) -> None:
        self._doing = doing
        try:
            Worker.objects.filter(name=self.name).update(doing=doing)
        except DatabaseError as error:
            logger.warning("Could not say %r (%s).", doing, error)

    def _beat(self) -> None:
        Worker.objects.filter(name=self.name).update(last_seen_at=Now(), **self._device_facts())
        TargetRow.objects.filter(pk=self.target_row.pk).update(served_until=now_in(conf().served_s))

    def _device_facts(self) -> dict[str, Any]:
        """Columns with the device's present state; none if this worker serves the CPU."""
        device = self._laboratory.device if self._laboratory is not None else None
        if device is None:
            return {}
        reading = device.reading()
        return {
            "device": device.gpu.name,
            "device_memory_bytes": device.total_bytes,
            "device_state": asdict(reading) if reading else {"why_not": device.why_not},
        }

    def _pulse(self) -> None:
        """Tell the database that this process lives; end it if it was orphaned, or must stop and does not."""
        parent = os.getppid()
        beaten = asked_at = 0.0
        while not self._ended.wait(0.2):
            now = time.monotonic()
            if now - self._led_at < LEADER_S:
                alive.beat(PART)
            if os.getppid() != parent:
                self._end_now("Celery's main process is gone")
            if stopping.is_asked():
                asked_at = asked_at or now
                if self._doing and now - asked_at > conf().stop_grace_s:
                    # A step that does not end by itself: without its children it does.
                    _kill_descendants()
            if now - beaten >= conf().worker_beat_s:
                beaten = now
                self._quietly("giving signs of life", self._beat)

    def _lead(self) -> None:
        while not self._ended.wait(conf().tick_s):
            self._led_at = time.monotonic()
            if not stopping.is_asked():
                self._quietly("the leader's round", lambda: leader.tick(self.owner))

    def _quietly(self, name: str, work: Callable[[], object]) -> None:
        """Periodic work survives a database that fails for a while."""
        try:
            close_old_connections()
            with step(name):
                work()
        except DatabaseError as error:
            logger.warning("The database failed (%s); trying again.", error)

    def _end_now(self, why: str) -> None:
        logger.warning("%s: ending at once.", why)
        _kill_descendants()
        os._exit(1)


def _see_to_queues() -> None:
    """A part of the leader's work, done here so that nothing waits for its next round."""
    for name, work in (
        ("promoting misses", promote_misses),
        ("beginning further rounds", begin_rounds),
        ("planning kernels' evaluations", plan_waiting),
    ):
        with step(name):
            work()


def _kill_descendants() -> None:
    """Zygotes, sandboxes and what runs in them."""
    for pid in procfs.family(os.getpid()):
        procfs.kill(pid)


make_tools: Callable[[], Tools] = real_tools
"""A started worker's tools; a module that wraps the Celery application can name others."""

_this: WorkerProcess | None = None


def this_worker() -> WorkerProcess:
    """This process's worker; raises RuntimeError if none was started."""
    if _this is None:
        raise RuntimeError(
            "No worker was started in this process: doorbells are answered by a Celery worker."
        )
    return _this


def start_worker(name: str) -> WorkerProcess:
    """Make this process a worker."""
    global _this
    _this = WorkerProcess(name, make_tools())
    _this.start()
    return _this


def stop_worker() -> None:
    global _this
    if _this is not None:
        _this.close()
        _this = None
