------------------------------- MODULE Limits -------------------------------
(***************************************************************************)
(* A limit on the jobs of one key that run at once.                        *)
(*                                                                         *)
(* A permit is nothing of its own: the partition of the key remembers      *)
(* which jobs it let in, and each counts while its row bears a token.      *)
(* Everything that adds, frees or ends a job of the key appends a signal   *)
(* in the same statement.  A poll reads signals, takes the first jobs as   *)
(* far as there is room, and removes the signals that it has seen.  A full *)
(* partition gets no new signal: who leaves it writes one.                 *)
(*                                                                         *)
(* A poll counts by its snapshot, which may be old when it gets the        *)
(* partition's lock.  So the partition's row is replaced whenever somebody *)
(* is let in: a poll whose row is gone does nothing.  The row of turn 0 is *)
(* inserted when a partition is made and stays until it is swept away, so  *)
(* that nobody makes it a second time.                                     *)
(*                                                                         *)
(* Looks and writes of polls and sweeps are steps of their own.  All other *)
(* statements are one step: they lock the job's row and compare its token. *)
(* On SQLite, which has one writer, a look and its write do not part.      *)
(*                                                                         *)
(* Left out: rates, priorities, order and the place in the queue, limits   *)
(* of all keys together, settings that change.                             *)
(*                                                                         *)
(* Properties:                                                             *)
(*   NeverAbove    no more jobs bear a token than are allowed              *)
(*   NoneForgotten with room and a job that waits there is a signal        *)
(*   AllRun        every job ends                                          *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Jobs, Claimers,
          Allowed,
          MaxTrouble,  \* attempts that fail, workers that are stopped past their lease, rows that others have locked
          MaxSweeps,
          Bug

VARIABLES
    job,      \* the live row: "unborn", "waiting", "running", "ended", and its newest token
    runs,     \* attempts in workers: job and token
    gate,     \* the partition: whether turn 0 is there, the newest turn, its row (no two are the same), whom it let in
    lock,     \* which poll has the partition's row
    signals,  \* each with a number, so that polls tell old and new ones apart
    poll,     \* by claimer: where its poll is, and what its snapshot showed
    sweep,    \* the sweep: where it is, and which row it saw to be idle
    count,    \* a counter of permits, which only broken variants use
    trouble, sweeps

vars == <<job, runs, gate, lock, signals, poll, sweep, count, trouble, sweeps>>

Resting == [at |-> "idle", made |-> FALSE, turn |-> 0, row |-> 0, still |-> {}, waiting |-> {}, seen |-> {}]
NoGate == [made |-> FALSE, turn |-> 0, row |-> 0, holders |-> {}]
Counts == Bug \in {"permit-returned-twice", "permit-leaks"}

Init ==
    /\ job = [j \in Jobs |-> [state |-> "unborn", token |-> 0]]
    /\ runs = {}
    /\ gate = NoGate
    /\ lock = "none"
    /\ signals = {}
    /\ poll = [c \in Claimers |-> Resting]
    /\ sweep = [at |-> "idle", row |-> 0]
    /\ count = 0
    /\ trouble = 0
    /\ sweeps = 0

In(state) == {j \in Jobs : job[j].state = state}
Running == In("running")
(* The smallest number that no signal has, and that no poll remembers. *)
Used == signals \union UNION {poll[c].seen : c \in Claimers}
New == CHOOSE n \in 1 .. Cardinality(Used) + 1 : n \notin Used /\ \A m \in 1 .. n - 1 : m \in Used
Signalled == signals \union {New}
Left == IF Bug = "leave-without-signal" THEN signals ELSE Signalled
Back == IF Counts /\ count > 0 THEN count - 1 ELSE count

-----------------------------------------------------------------------------
\* postgres: job_insert_limited
\* sqlite: limit_insert_queue, limit_signal_placed
Insert(j) ==
    /\ job[j].state = "unborn"
    /\ job' = [job EXCEPT ![j].state = "waiting"]
    /\ signals' = IF Bug = "start-without-signal" THEN signals ELSE Signalled
    /\ UNCHANGED <<runs, gate, lock, poll, sweep, count, trouble, sweeps>>

Bears(r) == job[r.job].state = "running" /\ job[r.job].token = r.token

\* postgres: job_complete_limited, job_finish
\* sqlite: job_finish_held, job_finish_end, limit_signal_leaving, queue_drop
Complete(r) ==
    /\ r \in runs /\ runs' = runs \ {r}
    /\ IF Bears(r)
       THEN /\ job' = [job EXCEPT ![r.job].state = "ended"]
            /\ signals' = Left
            /\ count' = Back
       ELSE /\ count' = IF Bug = "permit-returned-twice" THEN Back ELSE count
            /\ UNCHANGED <<job, signals>>
    /\ UNCHANGED <<gate, lock, poll, sweep, trouble, sweeps>>

\* postgres: job_finish
\* sqlite: job_finish_return, limit_signal_placed
Retry(r) ==
    /\ trouble < MaxTrouble /\ trouble' = trouble + 1
    /\ r \in runs /\ Bears(r) /\ runs' = runs \ {r}
    /\ job' = [job EXCEPT ![r.job].state = "waiting"]
    /\ signals' = Left
    /\ count' = Back
    /\ UNCHANGED <<gate, lock, poll, sweep, sweeps>>

(* The lease has ended; the worker was stopped, and goes on later. *)
\* postgres: lease_reap
\* sqlite: lease_reap, lease_reap_jobs, lease_reap_return
Reap(r) ==
    /\ trouble < MaxTrouble /\ trouble' = trouble + 1
    /\ r \in runs /\ Bears(r)
    /\ job' = [job EXCEPT ![r.job].state = "waiting"]
    /\ signals' = Left
    /\ count' = IF Bug = "permit-leaks" THEN count ELSE Back
    /\ UNCHANGED <<runs, gate, lock, poll, sweep, sweeps>>

-----------------------------------------------------------------------------
(* The snapshot of a poll: signals, the newest row of the partition, who of those let in bears a token, who waits. *)
\* postgres: limit_claim
\* sqlite: limit_signals, limit_partitions, limit_bearing, limit_poll
PollLook(c) ==
    /\ poll[c].at = "idle" /\ signals # {}
    /\ poll' = [poll EXCEPT ![c] = [at |-> "looked", made |-> gate.made, turn |-> gate.turn, row |-> gate.row,
         still |-> gate.holders \intersect Running, waiting |-> In("waiting"), seen |-> signals]]
    /\ UNCHANGED <<job, runs, gate, lock, signals, sweep, count, trouble, sweeps>>

IsNewest(c) ==
    CASE Bug = "stale-count" -> TRUE
      [] ~poll[c].made -> ~gate.made \/ Bug = "made-twice"
      [] Bug = "row-by-its-turn" -> gate.made /\ gate.turn = poll[c].turn
      [] OTHER -> gate.made /\ gate.row = poll[c].row

(* Locks that very row, or makes the partition if the snapshot had none; otherwise the signals are left to others. *)
\* postgres: limit_claim
\* sqlite: limit_partitions
PollLock(c) ==
    /\ poll[c].at = "looked"
    /\ IF lock = "none" /\ IsNewest(c)
       THEN /\ lock' = c
            /\ gate' = [gate EXCEPT !.made = TRUE]
            /\ poll' = [poll EXCEPT ![c].at = "locked"]
       ELSE /\ poll' = [poll EXCEPT ![c] = Resting]
            /\ UNCHANGED <<lock, gate>>
    /\ UNCHANGED <<job, runs, signals, sweep, count, trouble, sweeps>>

(* Takes jobs as far as there is room; those that others have locked are passed over and looked for again. *)
\* postgres: limit_claim
\* sqlite: job_claim_take, job_claim_lease, limit_partitions_put, limit_answer, limit_signal
PollWrite(c, chosen, locked) ==
    LET p == poll[c]
        busy == IF Counts THEN count ELSE Cardinality(p.still)
        room == IF busy < Allowed THEN Allowed - busy ELSE 0
        got == (chosen \ locked) \intersect In("waiting")
        isFull == busy + Cardinality(got) >= Allowed
        more == ~isFull /\ (got # chosen \/ chosen # p.waiting)
        unanswered == IF Bug = "answers-unseen" THEN {} ELSE signals \ p.seen
    IN
    /\ p.at = "locked"
    /\ chosen \subseteq p.waiting /\ locked \subseteq chosen
    /\ IF locked = {} THEN UNCHANGED trouble ELSE trouble < MaxTrouble /\ trouble' = trouble + 1
    /\ Cardinality(chosen) = IF Cardinality(p.waiting) < room THEN Cardinality(p.waiting) ELSE room
    /\ job' = [j \in Jobs |-> IF j \in got THEN [state |-> "running", token |-> job[j].token + 1] ELSE job[j]]
    /\ runs' = runs \union {[job |-> j, token |-> job[j].token + 1] : j \in got}
    /\ gate' = IF got = {} THEN gate ELSE [made |-> TRUE, turn |-> gate.turn + 1, row |-> gate.row + 1, holders |-> p.still \union got]
    /\ signals' = IF more /\ Bug # "more-waits-unnoticed" THEN unanswered \union {New} ELSE unanswered
    /\ count' = IF Counts THEN count + Cardinality(got) ELSE count
    /\ lock' = "none"
    /\ poll' = [poll EXCEPT ![c] = Resting]
    /\ UNCHANGED <<sweep, sweeps>>

-----------------------------------------------------------------------------
(* A partition with nobody let in and nobody waiting is removed, if it is still the one that was looked at. *)
\* postgres: limit_sweep
\* sqlite: limit_sweep_page, limit_sweep
SweepLook ==
    /\ sweeps < MaxSweeps /\ sweep.at = "idle" /\ gate.made /\ gate.turn > 0
    /\ gate.holders \intersect Running = {} /\ In("waiting") = {}
    /\ sweep' = [at |-> "looked", row |-> gate.row]
    /\ sweeps' = sweeps + 1
    /\ UNCHANGED <<job, runs, gate, lock, signals, poll, count, trouble>>

\* postgres: limit_sweep
\* sqlite: limit_sweep
SweepWrite ==
    /\ sweep.at = "looked"
    /\ sweep' = [at |-> "idle", row |-> 0]
    /\ gate' = IF lock = "none" /\ (gate.row = sweep.row \/ Bug = "swept-in-use")
              THEN [NoGate EXCEPT !.row = gate.row + 1] ELSE gate
    /\ UNCHANGED <<job, runs, lock, signals, poll, count, trouble, sweeps>>

-----------------------------------------------------------------------------
Next ==
    \/ \E j \in Jobs : Insert(j)
    \/ \E r \in runs : Complete(r) \/ Retry(r) \/ Reap(r)
    \/ \E c \in Claimers :
        \/ PollLook(c) \/ PollLock(c)
        \/ \E chosen \in SUBSET poll[c].waiting : \E locked \in SUBSET chosen : PollWrite(c, chosen, locked)
    \/ SweepLook \/ SweepWrite

(* Jobs and claimers are alike; for liveness TLC must tell them apart. *)
Alike == Permutations(Jobs) \union Permutations(Claimers)

Safety == Init /\ [][Next]_vars

Fairness ==
    /\ \A j \in Jobs : WF_vars(Insert(j))
    /\ WF_vars(\E r \in runs : Complete(r))
    /\ \A c \in Claimers :
        WF_vars(PollLook(c)) /\ WF_vars(PollLock(c)) /\ SF_vars(\E chosen \in SUBSET poll[c].waiting : PollWrite(c, chosen, {}))

Spec == Safety /\ Fairness

-----------------------------------------------------------------------------
NeverAbove == Cardinality(Running) <= Allowed
NoneForgotten == In("waiting") # {} /\ Cardinality(Running) < Allowed => signals # {}
AllRun == <>(In("ended") = Jobs)
=============================================================================
