------------------------------ MODULE Signals ------------------------------
(***************************************************************************)
(* Durable functions that park, and the signals that wake them.            *)
(*                                                                         *)
(* A function records its wait, parks, and holds nothing.  Anybody's       *)
(* transaction appends a signal and locks nothing.  A router marks fresh   *)
(* signals as routed and wakes the functions that wait; parking looks for  *)
(* signals itself.  The one that comes second finds what the other left.   *)
(*                                                                         *)
(* Parking and routing are statements that look (their snapshot) and later *)
(* write (under the row's lock, with the row as it is then).  All others   *)
(* are one step: they lock the row and compare the token in it.  A worker  *)
(* that was stopped past its lease goes on with the token that it had.     *)
(*                                                                         *)
(* `woken` of the live row has three values: "false" is parked, "true"     *)
(* says that something happened while the function ran, "null" is          *)
(* anything else.                                                          *)
(*                                                                         *)
(* On SQLite the transaction that appends a signal also wakes: it is a     *)
(* route whose look and write are one.                                     *)
(*                                                                         *)
(* Left out: several waits of a function, runs of other chains (their ends *)
(* mark the row as a router does), broadcasts, signals that are kept for a *)
(* time only, and limits.                                                  *)
(*                                                                         *)
(* Properties:                                                             *)
(*   NoLostWake    a signal that a parked function can take is still to    *)
(*                 be routed                                               *)
(*   TakenOnce     a signal ends one wait                                  *)
(*   EndsOnce      a wait ends once, by its signal or by its time          *)
(*   NoLateRecord  nothing is recorded for a function that was taken over  *)
(*   NotHurried    a signal does not shorten the delay of a retry          *)
(*   Wakes         a function whose signal came goes on                    *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Functions, Signals,
          HasTimeout,    \* whether waits have a time limit
          MaxTrouble,    \* attempts that fail or whose worker is stopped or dies
          Bug

VARIABLES
    row,      \* the live row: token (0 is none), woken, when it is due; or ended
    newest,   \* the newest token, by function
    wait,     \* the record of the wait: "none", "open", "signal", "timed_out"
    over,     \* whether the wait's time is over
    signal,   \* "unsent", "fresh", "routed"
    taken,    \* who took a signal
    runs,     \* attempts in workers: token, where they are, and what they have read
    router,   \* what a router has read
    trouble, late, hurried, ends

vars == <<row, newest, wait, over, signal, taken, runs, router, trouble, late, hurried, ends>>

Nobody == "nobody"
NoSignal == "no signal"
Idle == [at |-> "idle", signals |-> {}, functions |-> {}]

Init ==
    /\ row = [f \in Functions |-> [live |-> TRUE, token |-> 0, woken |-> "null", due |-> "now"]]
    /\ newest = [f \in Functions |-> 0]
    /\ wait = [f \in Functions |-> "none"]
    /\ over = [f \in Functions |-> FALSE]
    /\ signal = [s \in Signals |-> "unsent"]
    /\ taken = [s \in Signals |-> Nobody]
    /\ runs = {}
    /\ router = Idle
    /\ trouble = 0
    /\ late = FALSE
    /\ hurried = FALSE
    /\ ends = [f \in Functions |-> 0]

Proven(r) == row[r.fun].live /\ row[r.fun].token = r.token
Takeable == {s \in Signals : signal[s] # "unsent" /\ taken[s] = Nobody}
Move(r, there) == runs' = (runs \ {r}) \union there
At(r, place) == r \in runs /\ r.at = place

-----------------------------------------------------------------------------
\* postgres: job_claim, job_claim_queues
\* sqlite: job_claim_take, job_claim_lease
Claim(f) ==
    /\ row[f].live /\ row[f].token = 0 /\ row[f].due = "now"
    /\ newest' = [newest EXCEPT ![f] = @ + 1]
    /\ row' = [row EXCEPT ![f].token = newest[f] + 1]
    /\ runs' = runs \union {[fun |-> f, token |-> newest[f] + 1, at |-> "claimed",
                             sees |-> "none", found |-> NoSignal, mark |-> FALSE]}
    /\ UNCHANGED <<wait, over, signal, taken, router, trouble, late, hurried, ends>>

(* Reads the records, with a signal that an open wait can take. *)
\* postgres: step_list
\* sqlite: step_list
Load(r) ==
    /\ At(r, "claimed")
    /\ \E found \in IF wait[r.fun] = "open" /\ Takeable # {} THEN Takeable ELSE {NoSignal} :
        Move(r, {[r EXCEPT !.at = "loaded", !.sees = wait[r.fun], !.found = found]})
    /\ UNCHANGED <<row, newest, wait, over, signal, taken, router, trouble, late, hurried, ends>>

(* Records the wait, under the token, with the row locked: whoever takes the function over sees the record. *)
\* postgres: step_record
\* sqlite: step_record, step_mark
Record(r) ==
    /\ \/ At(r, "loaded") /\ r.sees = "none" /\ Bug # "record-without-lock"
       \/ At(r, "proven")
    /\ IF (Proven(r) \/ r.at = "proven") /\ wait[r.fun] = "none"
       THEN /\ wait' = [wait EXCEPT ![r.fun] = "open"]
            /\ late' = (late \/ r.token # newest[r.fun])
            /\ Move(r, {[r EXCEPT !.at = "waiting"]})
       ELSE /\ Move(r, {})
            /\ UNCHANGED <<wait, late>>
    /\ UNCHANGED <<row, newest, over, signal, taken, router, trouble, hurried, ends>>

\* no statement: only a broken record compares the token before it writes
Prove(r) ==
    /\ Bug = "record-without-lock" /\ At(r, "loaded") /\ r.sees = "none" /\ Proven(r)
    /\ Move(r, {[r EXCEPT !.at = "proven"]})
    /\ UNCHANGED <<row, newest, wait, over, signal, taken, router, trouble, late, hurried, ends>>

(* A statement whose answer was lost is sent again. *)
Unanswered(answered) ==
    IF answered THEN UNCHANGED trouble ELSE trouble < MaxTrouble /\ trouble' = trouble + 1
(* A wait that was ended is read again; one that another attempt has is left. *)
Refused(r) == IF Proven(r) THEN {[r EXCEPT !.at = "claimed"]} ELSE {}
Sent(r, answered) == {IF answered THEN [r EXCEPT !.at = "over"] ELSE r}

(* Ends the wait by a signal, which is taken in the same statement; one that another function has is left. *)
\* postgres: step_close
\* sqlite: step_close_read, step_close, signal_take
CloseBySignal(r, answered) ==
    /\ Unanswered(answered)
    /\ At(r, "loaded") /\ r.sees = "open" /\ r.found # NoSignal
    /\ IF (Proven(r) \/ Bug = "close-without-token") /\ (wait[r.fun] = "open" \/ Bug = "close-what-is-closed")
       THEN IF taken[r.found] = Nobody \/ Bug = "take-without-recheck"
            THEN /\ wait' = [wait EXCEPT ![r.fun] = "signal"]
                 /\ taken' = [taken EXCEPT ![r.found] = r.fun]
                 /\ ends' = [ends EXCEPT ![r.fun] = @ + 1]
                 /\ late' = (late \/ r.token # newest[r.fun])
                 /\ Move(r, Sent(r, answered))
            ELSE /\ Move(r, {[r EXCEPT !.at = "waiting"]})
                 /\ UNCHANGED <<wait, taken, ends, late>>
       ELSE /\ Move(r, Refused(r))
            /\ UNCHANGED <<wait, taken, ends, late>>
    /\ UNCHANGED <<row, newest, over, signal, router, hurried>>

\* postgres: step_close
\* sqlite: step_close_read, step_close
CloseByTime(r, answered) ==
    /\ Unanswered(answered)
    /\ At(r, "loaded") /\ r.sees = "open" /\ r.found = NoSignal /\ over[r.fun]
    /\ IF (Proven(r) \/ Bug = "close-without-token") /\ (wait[r.fun] = "open" \/ Bug = "close-what-is-closed")
       THEN /\ wait' = [wait EXCEPT ![r.fun] = "timed_out"]
            /\ ends' = [ends EXCEPT ![r.fun] = @ + 1]
            /\ late' = (late \/ r.token # newest[r.fun])
            /\ Move(r, Sent(r, answered))
       ELSE /\ Move(r, Refused(r))
            /\ UNCHANGED <<wait, ends, late>>
    /\ UNCHANGED <<row, newest, over, signal, taken, router, hurried>>

IsWaiting(r) == At(r, "waiting") \/ (At(r, "loaded") /\ r.sees = "open" /\ r.found = NoSignal /\ ~over[r.fun])

(* The snapshot of the park. *)
\* postgres: job_park
\* sqlite: step_may_go_on
ParkLook(r) ==
    /\ IsWaiting(r)
    /\ Move(r, {[r EXCEPT !.at = "parking",
                 !.found = IF Takeable # {} /\ Bug # "park-without-look" THEN CHOOSE s \in Takeable : TRUE ELSE NoSignal,
                 !.mark = row[r.fun].woken = "true"]})
    /\ UNCHANGED <<row, newest, wait, over, signal, taken, router, trouble, late, hurried, ends>>

(* Its write, with the row as it is now: what happened since the snapshot has left its mark there. *)
\* postgres: job_park
\* sqlite: job_finish_return
Park(r) ==
    /\ At(r, "parking")
    /\ Move(r, {})
    /\ row' = IF ~Proven(r) THEN row
              ELSE LET marked == IF Bug = "park-by-an-old-mark" THEN r.mark ELSE row[r.fun].woken = "true"
                       goesOn == marked \/ r.found # NoSignal \/ over[r.fun]
                   IN [row EXCEPT ![r.fun] = [live |-> TRUE, token |-> 0,
                         woken |-> IF goesOn THEN "null" ELSE "false",
                         due |-> IF goesOn THEN "now" ELSE IF HasTimeout THEN "timeout" ELSE "never"]]
    /\ UNCHANGED <<newest, wait, over, signal, taken, router, trouble, late, hurried, ends>>

\* postgres: job_finish, job_complete, job_complete_one
\* sqlite: job_finish_held, job_finish_end, queue_drop
Complete(r) ==
    /\ At(r, "over") \/ (At(r, "loaded") /\ r.sees \in {"signal", "timed_out"})
    /\ Move(r, {})
    /\ row' = IF Proven(r) THEN [row EXCEPT ![r.fun] = [@ EXCEPT !.live = FALSE, !.token = 0]] ELSE row
    /\ UNCHANGED <<newest, wait, over, signal, taken, router, trouble, late, hurried, ends>>

(* A function that is not parked any more must not look as if it were. *)
NotParked(f) == IF Bug = "mark-outlives-the-park" THEN row[f].woken ELSE "null"

\* postgres: job_finish
\* sqlite: job_finish_return
Retry(r) ==
    /\ trouble < MaxTrouble /\ trouble' = trouble + 1
    /\ r \in runs /\ r.at \in {"loaded", "over"}
    /\ Move(r, {})
    /\ row' = IF Proven(r)
              THEN [row EXCEPT ![r.fun] = [live |-> TRUE, token |-> 0, due |-> "backoff", woken |-> NotParked(r.fun)]]
              ELSE row
    /\ UNCHANGED <<newest, wait, over, signal, taken, router, late, hurried, ends>>

(* The lease has ended. The worker is dead, or was stopped and goes on later. *)
\* postgres: lease_reap
\* sqlite: lease_reap, lease_reap_jobs, lease_reap_return
Reap(r, dead) ==
    /\ trouble < MaxTrouble /\ trouble' = trouble + 1
    /\ r \in runs /\ Proven(r)
    /\ \E due \in {"now", "backoff"} :
        row' = [row EXCEPT ![r.fun] = [live |-> TRUE, token |-> 0, due |-> due, woken |-> NotParked(r.fun)]]
    /\ Move(r, IF dead THEN {} ELSE {r})
    /\ UNCHANGED <<newest, wait, over, signal, taken, router, late, hurried, ends>>

-----------------------------------------------------------------------------
\* postgres: signal_append
\* sqlite: signal_append
Send(s) ==
    /\ signal[s] = "unsent"
    /\ signal' = [signal EXCEPT ![s] = "fresh"]
    /\ UNCHANGED <<row, newest, wait, over, taken, runs, router, trouble, late, hurried, ends>>

(* The snapshot of a route: fresh signals, and the functions whose waits are committed. *)
\* postgres: signal_route
\* sqlite: signal_wake
RouteLook ==
    /\ router.at = "idle" /\ Bug # "no-router" /\ \E s \in Signals : signal[s] = "fresh"
    /\ router' = [at |-> "looked", signals |-> {s \in Signals : signal[s] = "fresh"},
                  functions |-> {f \in Functions : wait[f] = "open" /\ row[f].live}]
    /\ UNCHANGED <<row, newest, wait, over, signal, taken, runs, trouble, late, hurried, ends>>

Woken(f) ==
    CASE row[f].token # 0 -> [row[f] EXCEPT !.woken = IF Bug = "router-leaves-no-mark" THEN @ ELSE "true"]
      [] row[f].woken = "false" -> [row[f] EXCEPT !.woken = "null", !.due = "now"]
      [] OTHER -> row[f]

(* Its write. Rows that others have locked are not free: then the signal stays fresh. *)
\* postgres: signal_route
\* sqlite: signal_wake
Route(free) ==
    /\ router.at = "looked"
    /\ free \subseteq {f \in router.functions : row[f].live}
    /\ signal' = [s \in Signals |->
         IF s \in router.signals /\ (free = router.functions \/ Bug = "routed-though-locked") THEN "routed" ELSE signal[s]]
    /\ row' = [f \in Functions |-> IF f \in free THEN Woken(f) ELSE row[f]]
    /\ hurried' = (hurried \/ \E f \in free : row[f].due = "backoff" /\ row'[f].due = "now")
    /\ router' = Idle
    /\ UNCHANGED <<newest, wait, over, taken, runs, trouble, late, ends>>

\* no statement: the time of a wait is over by the database's clock
TimeOut(f) ==
    /\ HasTimeout /\ wait[f] = "open" /\ ~over[f]
    /\ over' = [over EXCEPT ![f] = TRUE]
    /\ UNCHANGED <<row, newest, wait, signal, taken, runs, router, trouble, late, hurried, ends>>

\* no statement: a row becomes due by the database's clock
BecomeDue(f) ==
    /\ row[f].due = "backoff" \/ (row[f].due = "timeout" /\ over[f])
    /\ row' = [row EXCEPT ![f].due = "now"]
    /\ UNCHANGED <<newest, wait, over, signal, taken, runs, router, trouble, late, hurried, ends>>

-----------------------------------------------------------------------------
Next ==
    \/ \E f \in Functions : Claim(f) \/ TimeOut(f) \/ BecomeDue(f)
    \/ \E r \in runs :
        \/ Load(r) \/ Prove(r) \/ Record(r)
        \/ \E answered \in BOOLEAN : CloseBySignal(r, answered) \/ CloseByTime(r, answered)
        \/ ParkLook(r) \/ Park(r) \/ Complete(r) \/ Retry(r)
        \/ \E dead \in BOOLEAN : Reap(r, dead)
    \/ \E s \in Signals : Send(s)
    \/ RouteLook \/ \E free \in SUBSET Functions : Route(free)

(* Functions are alike; for liveness TLC must tell them apart. *)
Alike == Permutations(Functions)

Safety == Init /\ [][Next]_vars

Fairness ==
    /\ \A f \in Functions : WF_vars(Claim(f)) /\ WF_vars(BecomeDue(f))
    /\ WF_vars(\E r \in runs : Load(r) \/ Record(r) \/ CloseBySignal(r, TRUE) \/ ParkLook(r) \/ Park(r) \/ Complete(r))
    /\ WF_vars(RouteLook) /\ SF_vars(Route({f \in router.functions : row[f].live}))

Spec == Safety /\ Fairness

-----------------------------------------------------------------------------
NoLostWake ==
    \A f \in Functions :
        row[f].live /\ row[f].token = 0 /\ row[f].due \in {"never", "timeout"} /\ wait[f] = "open"
        => \A s \in Takeable : signal[s] = "fresh"
TakenOnce == Cardinality({f \in Functions : wait[f] = "signal"}) <= Cardinality({s \in Signals : taken[s] # Nobody})
EndsOnce == \A f \in Functions : ends[f] <= 1
NoLateRecord == ~late
NotHurried == ~hurried
Wakes == (\E s \in Signals : signal[s] # "unsent") ~> (\E f \in Functions : wait[f] = "signal")
=============================================================================
