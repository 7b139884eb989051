------------------------------- MODULE FanIn -------------------------------
(***************************************************************************)
(* A job that waits for chains opens exactly once, when the last of them   *)
(* has completed.                                                          *)
(*                                                                         *)
(* One transaction inserts a job as blocked and attaches it to every       *)
(* chain; each chain is ended, continued or failed by its worker, and a    *)
(* failed one is redriven.  All of it runs at once, at READ COMMITTED: a   *)
(* statement sees what was committed when it began, a row that another     *)
(* transaction has locked is waited for, and what a transaction wrote is   *)
(* seen by others after its commit.  Transactions may be rolled back at    *)
(* any step.                                                               *)
(*                                                                         *)
(* Attaching marks the live tail of a chain as awaited, which needs the    *)
(* row's lock, as its end does.  So either the end sees the mark, or the   *)
(* attaching sees the end.                                                 *)
(*                                                                         *)
(* SQLite has one writer at a time: its runs are those of this model in    *)
(* which transactions do not overlap.                                      *)
(*                                                                         *)
(* Left out: leases (see Lease), the policies `fail` and `ignore` (a       *)
(* waiting job here waits until a failed chain was redriven), several      *)
(* waiting jobs (their rows are locked in id order).                       *)
(*                                                                         *)
(* Properties:                                                             *)
(*   NotTooEarly  a job that is open waits for no chain that can still run *)
(*   OpensOnce    it is opened at most once                                *)
(*   NeverStuck   with every chain completed and no transaction open, it   *)
(*                is open                                                  *)
(*   Opens        it is opened in the end, whatever waits for whatever     *)
(***************************************************************************)
EXTENDS Naturals, TLC

CONSTANTS Chains,
          Lengths,     \* how many jobs a chain can have
          MaxFails,    \* how often chains fail, each time to be redriven
          MaxUndone,   \* transactions that are rolled back
          Bug

VARIABLES
    tail,     \* committed: the last job of a chain: its number, state, and whether it is awaited
    lock,     \* who has the tail's row: "none", "attach", "end", "redrive"
    edge,     \* committed: whether the job waits for a chain: "none", "open", "closed"
    job,      \* committed: "absent", "blocked", "open"
    jobLock,  \* which chain's end has the row of the waiting job
    opened,   \* how often it was opened
    attach,   \* the attaching transaction: where it is, and for each chain what it read and found
    ending,   \* by chain: where the transaction that ends it is, and what it has found
    redrive,  \* by chain: the transaction that redrives it
    fails, undone

vars == <<tail, lock, edge, job, jobLock, opened, attach, ending, redrive, fails, undone>>

Fresh == [at |-> "idle", opens |-> FALSE]
Unread == [at |-> "unread", number |-> 0, state |-> "none"]

Init ==
    /\ tail = [c \in Chains |-> [number |-> 1, state |-> "live", awaited |-> FALSE]]
    /\ lock = [c \in Chains |-> "none"]
    /\ edge = [c \in Chains |-> "none"]
    /\ job = "absent"
    /\ jobLock = "none"
    /\ opened = 0
    /\ attach = [at |-> "idle", chain |-> [c \in Chains |-> Unread]]
    /\ ending = [c \in Chains |-> Fresh]
    /\ redrive = [c \in Chains |-> [at |-> "idle", awaited |-> FALSE]]
    /\ fails = 0
    /\ undone = 0

-----------------------------------------------------------------------------
(* The transaction that attaches: edges, then chain by chain its tail, then the commit. *)

\* postgres: job_insert, blocker_insert
\* sqlite: job_insert, blocker_insert
AttachBegin ==
    /\ attach.at = "idle" /\ job = "absent"
    /\ attach' = [attach EXCEPT !.at = "settling"]
    /\ UNCHANGED <<tail, lock, edge, job, jobLock, opened, ending, redrive, fails, undone>>

\* postgres: chain_tail
\* sqlite: chain_tail
AttachRead(c) ==
    /\ attach.at = "settling" /\ attach.chain[c].at = "unread"
    /\ attach' = [attach EXCEPT !.chain[c] = [at |-> "read", number |-> tail[c].number, state |-> tail[c].state]]
    /\ UNCHANGED <<tail, lock, edge, job, jobLock, opened, ending, redrive, fails, undone>>

(* Marks the live tail, waiting for a transaction that has it. A tail that is gone is read again. *)
\* postgres: blocker_await
\* sqlite: blocker_await
AttachAwait(c) ==
    LET known == attach.chain[c] IN
    /\ attach.at = "settling" /\ known.at = "read" /\ known.state = "live"
    /\ \/ Bug = "attach-without-lock"
          /\ attach' = [attach EXCEPT !.chain[c].at = "marked"]
          /\ UNCHANGED lock
       \/ Bug # "attach-without-lock" /\ lock[c] = "none"
          /\ IF tail[c].state = "live" /\ tail[c].number = known.number
             THEN /\ lock' = [lock EXCEPT ![c] = "attach"]
                  /\ attach' = [attach EXCEPT !.chain[c].at = "marked"]
             ELSE /\ attach' = IF Bug = "gone-means-ended"
                               THEN [attach EXCEPT !.chain[c].at = "held", !.chain[c].state = "completed"]
                               ELSE [attach EXCEPT !.chain[c] = Unread]
                  /\ UNCHANGED lock
    /\ UNCHANGED <<tail, edge, job, jobLock, opened, ending, redrive, fails, undone>>

(* Holds the end of a chain against a redrive; one that was redriven meanwhile is read again. *)
\* postgres: blocker_hold_ended
\* sqlite: blocker_hold_ended
AttachHold(c) ==
    LET known == attach.chain[c] IN
    /\ attach.at = "settling" /\ known.at = "read" /\ known.state # "live"
    /\ \/ Bug = "end-not-held"
          /\ attach' = [attach EXCEPT !.chain[c].at = "held"]
          /\ UNCHANGED lock
       \/ Bug # "end-not-held" /\ lock[c] = "none"
          /\ IF tail[c].state = known.state /\ tail[c].number = known.number
             THEN /\ lock' = [lock EXCEPT ![c] = "attach"]
                  /\ attach' = [attach EXCEPT !.chain[c].at = "held"]
             ELSE /\ attach' = [attach EXCEPT !.chain[c] = Unread]
                  /\ UNCHANGED lock
    /\ UNCHANGED <<tail, edge, job, jobLock, opened, ending, redrive, fails, undone>>

Let(c) == attach.chain[c].at = "held" /\ attach.chain[c].state = "completed"

(* Closes the edges of chains that have completed already, opens the job if none is left, and commits. *)
\* postgres: blocker_close, blocker_open_jobs
\* sqlite: blocker_close, blocker_open_jobs
AttachCommit ==
    /\ attach.at = "settling"
    /\ \A c \in Chains : attach.chain[c].at \in {"marked", "held"}
    /\ edge' = [c \in Chains |-> IF Let(c) THEN "closed" ELSE "open"]
    /\ tail' = [c \in Chains |-> IF attach.chain[c].at = "marked" /\ Bug # "attach-without-lock"
                                 THEN [tail[c] EXCEPT !.awaited = TRUE] ELSE tail[c]]
    /\ lock' = [c \in Chains |-> IF lock[c] = "attach" THEN "none" ELSE lock[c]]
    /\ IF \A c \in Chains : Let(c)
       THEN job' = "open" /\ opened' = opened + 1
       ELSE job' = "blocked" /\ UNCHANGED opened
    /\ attach' = [attach EXCEPT !.at = "done"]
    /\ UNCHANGED <<jobLock, ending, redrive, fails, undone>>

\* no statement: the transaction is rolled back, and tried again
AttachUndo ==
    /\ undone < MaxUndone /\ undone' = undone + 1
    /\ attach.at = "settling"
    /\ lock' = [c \in Chains |-> IF lock[c] = "attach" THEN "none" ELSE lock[c]]
    /\ attach' = [at |-> "idle", chain |-> [c \in Chains |-> Unread]]
    /\ UNCHANGED <<tail, edge, job, jobLock, opened, ending, redrive, fails>>

-----------------------------------------------------------------------------
(* The end of a chain's last job. A flush takes only jobs that nobody awaits; others are ended with their fan-in. *)

After(c, how) ==
    CASE how = "continue" -> [number |-> tail[c].number + 1, state |-> "live",
                              awaited |-> tail[c].awaited /\ Bug # "continuation-forgets"]
      [] how = "fail" -> [tail[c] EXCEPT !.state = "failed"]
      [] OTHER -> [tail[c] EXCEPT !.state = "completed"]

May(c, how) ==
    /\ how = "continue" => tail[c].number < Lengths
    /\ how = "fail" => fails < MaxFails

\* postgres: job_finish, job_complete, job_complete_one
\* sqlite: job_finish_held, job_finish_end, job_continue, job_insert_queue, queue_drop
Flush(c, how) ==
    /\ tail[c].state = "live" /\ lock[c] = "none" /\ May(c, how)
    /\ ~tail[c].awaited \/ Bug = "flush-takes-awaited"
    /\ tail' = [tail EXCEPT ![c] = After(c, how)]
    /\ fails' = IF how = "fail" THEN fails + 1 ELSE fails
    /\ UNCHANGED <<lock, edge, job, jobLock, opened, attach, ending, redrive, undone>>

\* postgres: job_finish
\* sqlite: job_finish_held, job_finish_end, queue_drop
End(c) ==
    /\ tail[c].state = "live" /\ tail[c].awaited /\ lock[c] = "none" /\ ending[c].at = "idle"
    /\ lock' = [lock EXCEPT ![c] = "end"]
    /\ ending' = [ending EXCEPT ![c].at = "ended"]
    /\ UNCHANGED <<tail, edge, job, jobLock, opened, attach, redrive, fails, undone>>

(* An awaited chain that continues or fails closes nothing, whether it is in a transaction or not. *)
\* postgres: job_finish
\* sqlite: job_finish_held, job_continue, job_insert_queue, queue_drop
EndOpen(c, how) ==
    /\ tail[c].state = "live" /\ tail[c].awaited /\ lock[c] = "none" /\ May(c, how) /\ how # "complete"
    /\ tail' = [tail EXCEPT ![c] = After(c, how)]
    /\ fails' = IF how = "fail" THEN fails + 1 ELSE fails
    /\ UNCHANGED <<lock, edge, job, jobLock, opened, attach, ending, redrive, undone>>

(* Locks those who wait, before anything is decided about them. *)
\* postgres: blocker_dependents
\* sqlite: blocker_dependents
EndLock(c) ==
    /\ ending[c].at = "ended"
    /\ IF edge[c] = "open" /\ Bug # "decide-without-lock"
       THEN jobLock = "none" /\ jobLock' = c
       ELSE UNCHANGED jobLock
    /\ ending' = [ending EXCEPT ![c].at = "locked"]
    /\ UNCHANGED <<tail, lock, edge, job, opened, attach, redrive, fails, undone>>

(* Closes its own edge and looks for others, as far as they are committed. *)
\* postgres: blocker_close, blocker_open_jobs
\* sqlite: blocker_close, blocker_open_jobs
EndOpenJobs(c) ==
    /\ ending[c].at = "locked"
    /\ ending' = [ending EXCEPT ![c] = [at |-> "decided",
         opens |-> /\ edge[c] = "open" /\ Bug # "ends-open-nothing" /\ (job = "blocked" \/ Bug = "open-again")
                   /\ Bug \in {"open-without-recheck", "open-again"} \/ \A other \in Chains \ {c} : edge[other] # "open"]]
    /\ UNCHANGED <<tail, lock, edge, job, jobLock, opened, attach, redrive, fails, undone>>

\* no statement: the commit makes all of it visible at once
EndCommit(c) ==
    /\ ending[c].at = "decided"
    /\ tail' = [tail EXCEPT ![c].state = "completed"]
    /\ edge' = IF edge[c] = "open" THEN [edge EXCEPT ![c] = "closed"] ELSE edge
    /\ IF ending[c].opens
       THEN job' = "open" /\ opened' = opened + 1
       ELSE UNCHANGED <<job, opened>>
    /\ lock' = [lock EXCEPT ![c] = "none"]
    /\ jobLock' = IF jobLock = c THEN "none" ELSE jobLock
    /\ ending' = [ending EXCEPT ![c] = Fresh]
    /\ UNCHANGED <<attach, redrive, fails, undone>>

\* no statement: the transaction is rolled back, and tried again
EndUndo(c) ==
    /\ undone < MaxUndone /\ undone' = undone + 1
    /\ ending[c].at # "idle"
    /\ lock' = [lock EXCEPT ![c] = "none"]
    /\ jobLock' = IF jobLock = c THEN "none" ELSE jobLock
    /\ ending' = [ending EXCEPT ![c] = Fresh]
    /\ UNCHANGED <<tail, edge, job, opened, attach, redrive, fails>>

-----------------------------------------------------------------------------
(* A failed chain is taken back: one statement waits for those who attach, the next one looks for them. *)

\* postgres: blocker_lock_ended
\* sqlite: blocker_lock_ended
RedriveLock(c) ==
    /\ tail[c].state = "failed" /\ redrive[c].at = "idle"
    /\ IF Bug = "redrive-in-one-statement"
       THEN UNCHANGED lock
       ELSE lock[c] = "none" /\ lock' = [lock EXCEPT ![c] = "redrive"]
    \* The snapshot of a statement that still has to wait is this old.
    /\ redrive' = [redrive EXCEPT ![c] = [at |-> "locked", awaited |-> edge[c] = "open"]]
    /\ UNCHANGED <<tail, edge, job, jobLock, opened, attach, ending, fails, undone>>

\* postgres: job_redrive
\* sqlite: job_redrive, job_redrive_queue
Redrive(c) ==
    /\ redrive[c].at = "locked"
    /\ lock[c] = IF Bug = "redrive-in-one-statement" THEN "none" ELSE "redrive"
    /\ tail' = [tail EXCEPT ![c].state = "live",
                ![c].awaited = IF Bug = "redrive-in-one-statement" THEN redrive[c].awaited ELSE edge[c] = "open"]
    /\ lock' = [lock EXCEPT ![c] = "none"]
    /\ redrive' = [redrive EXCEPT ![c].at = "idle"]
    /\ UNCHANGED <<edge, job, jobLock, opened, attach, ending, fails, undone>>

-----------------------------------------------------------------------------
Hows == {"complete", "continue", "fail"}

Next ==
    \/ AttachBegin \/ AttachCommit \/ AttachUndo
    \/ \E c \in Chains :
        \/ AttachRead(c) \/ AttachAwait(c) \/ AttachHold(c)
        \/ End(c) \/ EndLock(c) \/ EndOpenJobs(c) \/ EndCommit(c) \/ EndUndo(c)
        \/ RedriveLock(c) \/ Redrive(c)
        \/ \E how \in Hows : Flush(c, how) \/ EndOpen(c, how)

(* Chains are alike; for liveness TLC must tell them apart. *)
Alike == Permutations(Chains)

Safety == Init /\ [][Next]_vars

Fairness ==
    /\ WF_vars(AttachBegin) /\ WF_vars(AttachCommit)
    /\ \A c \in Chains :
        /\ WF_vars(AttachRead(c)) /\ SF_vars(AttachAwait(c)) /\ SF_vars(AttachHold(c))
        /\ SF_vars(Flush(c, "complete")) /\ SF_vars(End(c)) /\ WF_vars(EndOpenJobs(c)) /\ WF_vars(EndCommit(c))
        /\ SF_vars(EndLock(c)) /\ SF_vars(RedriveLock(c)) /\ WF_vars(Redrive(c))

Spec == Safety /\ Fairness

-----------------------------------------------------------------------------
NotTooEarly == job = "open" => \A c \in Chains : tail[c].state = "completed"
OpensOnce == opened <= 1
NeverStuck ==
    (/\ attach.at = "done"
     /\ \A c \in Chains : tail[c].state = "completed" /\ ending[c].at = "idle") => job = "open"
Opens == <>(job = "open")
=============================================================================
