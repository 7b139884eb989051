------------------------------ MODULE Failover ------------------------------
(***************************************************************************)
(* A primary, its standby, and what a promotion may lose.                  *)
(*                                                                         *)
(* The old primary writes a log; the standby has a prefix of it.  With a   *)
(* synchronous standby a commit is answered when the standby has it.  A    *)
(* wait for the standby can be cut off: the commit is then visible on the  *)
(* old primary and its client does not know of it.  The standby is         *)
(* promoted at any moment; the old primary may be cut off and go on, with  *)
(* clients of its own.                                                     *)
(*                                                                         *)
(* One job is started, claimed, reaped and completed.  A producer that got *)
(* no answer starts it again with the same id.  The clock of the promoted  *)
(* server is behind.                                                       *)
(*                                                                         *)
(* Left out: a second failover, the standbys of the new primary, restored  *)
(* dumps (`fence_base` is for those), and how clients find a server.       *)
(* SQLite has no standby.                                                  *)
(*                                                                         *)
(* Properties:                                                             *)
(*   NoAckedLoss    an acknowledged start or completion is on the new      *)
(*                  primary                                                *)
(*   StartsHaveACause  a handler starts once, and once more for every      *)
(*                  lease that was reaped                                  *)
(*   FencesGrow     a later claim has a greater fence, whatever was lost   *)
(*   NoSharedToken  no two claims that were granted have the same token    *)
(* With an asynchronous standby only the last two hold.                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS IsSynchronous,
          MaxLog,    \* commits on the old primary
          MaxReaps,
          Bug

VARIABLES
    log,       \* what the old primary has after each of its commits
    shipped,   \* how much of it the standby has
    pending,   \* the commit of the old primary that is not answered yet
    new,       \* the promoted server: "none" before
    tokens,    \* random tokens made so far
    grants,    \* claims whose handlers started
    acked,     \* what clients were told
    reaps, asks

vars == <<log, shipped, pending, new, tokens, grants, acked, reaps, asks>>

Empty == [state |-> "none", token |-> 0, fence |-> 0, claims |-> 0]
Nothing == [kind |-> "nothing", token |-> 0, fence |-> 0, nth |-> 0]
NotPromoted == [state |-> "not promoted", token |-> 0, fence |-> 0, claims |-> 0]

Init ==
    /\ log = <<Empty>>
    /\ shipped = 1
    /\ pending = Nothing
    /\ new = NotPromoted
    /\ tokens = 0
    /\ grants = {}
    /\ acked = {}
    /\ reaps = 0
    /\ asks = 0

IsPromoted == new.state # "not promoted"
Old == log[Len(log)]

(* Milliseconds have the lower digits and the timeline the upper ones; the new server's clock is behind. *)
Lowest(timeline) ==
    LET clock == IF timeline = 1 THEN 5 ELSE 1
    IN IF Bug = "fence-by-clock" THEN clock ELSE 100 * timeline + clock
Fence(row, timeline) == IF row.fence + 1 > Lowest(timeline) THEN row.fence + 1 ELSE Lowest(timeline)
Token(row) == IF Bug = "token-is-a-counter" THEN row.claims + 1 ELSE tokens + 1

Claimed(row, timeline) ==
    [state |-> "held", token |-> Token(row), fence |-> Fence(row, timeline), claims |-> row.claims + 1]

(* A commit of the old primary. It waits for the one before, which has the row's lock. *)
Commit(row, kind) ==
    /\ pending = Nothing /\ Len(log) < MaxLog
    /\ log' = Append(log, row)
    /\ pending' = [kind |-> kind, token |-> row.token, fence |-> row.fence, nth |-> row.claims]

-----------------------------------------------------------------------------
\* postgres: job_insert, job_insert_one, job_insert_new
Start ==
    /\ Old.state = "none"
    /\ Commit([Old EXCEPT !.state = "free"], "start")
    /\ UNCHANGED <<shipped, new, tokens, grants, acked, reaps, asks>>

(* The job is there already, says a transaction that writes nothing but a message, to wait for the standby as well. *)
\* postgres: answer_confirm, job_insert
StartAgain ==
    /\ asks = 0 /\ asks' = 1
    /\ Old.state # "none" /\ pending = Nothing
    /\ IF Bug = "answer-unconfirmed"
       THEN acked' = acked \union {"start"} /\ UNCHANGED <<log, pending>>
       ELSE Commit(Old, "start") /\ UNCHANGED acked
    /\ UNCHANGED <<shipped, new, tokens, grants, reaps>>

\* postgres: job_claim, job_claim_queues, claim_clock
Claim ==
    /\ Old.state = "free"
    /\ Commit(Claimed(Old, 1), "claim")
    /\ tokens' = tokens + 1
    /\ UNCHANGED <<shipped, new, grants, acked, reaps, asks>>

\* postgres: lease_reap
Reap ==
    /\ Old.state = "held" /\ reaps < MaxReaps
    /\ Commit([Old EXCEPT !.state = "free", !.token = 0], "reap")
    /\ reaps' = reaps + 1
    /\ UNCHANGED <<shipped, new, tokens, grants, acked, asks>>

\* postgres: job_complete, job_complete_one, job_finish
Complete(g) ==
    /\ Old.state = "held" /\ Old.token = g.token
    /\ Commit([Old EXCEPT !.state = "done", !.token = 0], "done")
    /\ UNCHANGED <<shipped, new, tokens, grants, acked, reaps, asks>>

\* no statement: the standby receives the log, as long as it is one
Ship ==
    /\ ~IsPromoted /\ shipped < Len(log)
    /\ shipped' = shipped + 1
    /\ UNCHANGED <<log, pending, new, tokens, grants, acked, reaps, asks>>

IsEarly == ~IsSynchronous \/ Bug = "answered-before-the-standby" \/ (Bug = "lazy-claims" /\ pending.kind = "claim")

\* postgres: claim_clock
Answer ==
    /\ pending # Nothing
    /\ shipped = Len(log) \/ IsEarly
    /\ pending' = Nothing
    /\ IF pending.kind = "claim"
       THEN /\ grants' = grants \union
                 {[timeline |-> 1, nth |-> pending.nth, fence |-> pending.fence, token |-> pending.token, made |-> tokens]}
            /\ UNCHANGED acked
       ELSE /\ acked' = acked \union {pending.kind}
            /\ UNCHANGED grants
    /\ UNCHANGED <<log, shipped, new, tokens, reaps, asks>>

\* no statement: a session ends while its commit waits for the standby; the commit is visible, and nobody was told
CutOff ==
    /\ pending # Nothing
    /\ pending' = Nothing
    /\ UNCHANGED <<log, shipped, new, tokens, grants, acked, reaps, asks>>

-----------------------------------------------------------------------------
\* no statement: the standby becomes the primary, on a timeline of its own; the old one may go on
Promote ==
    /\ ~IsPromoted
    /\ new' = log[shipped]
    /\ UNCHANGED <<log, shipped, pending, tokens, grants, acked, reaps, asks>>

\* postgres: job_claim, job_claim_queues, claim_clock
ClaimNew ==
    /\ new.state = "free"
    /\ new' = Claimed(new, 2)
    /\ tokens' = tokens + 1
    /\ grants' = grants \union
         {[timeline |-> 2, nth |-> new'.claims, fence |-> new'.fence, token |-> new'.token, made |-> tokens + 1]}
    /\ UNCHANGED <<log, shipped, pending, acked, reaps, asks>>

\* postgres: lease_reap
ReapNew ==
    /\ new.state = "held" /\ reaps < MaxReaps
    /\ new' = [new EXCEPT !.state = "free", !.token = 0]
    /\ reaps' = reaps + 1
    /\ UNCHANGED <<log, shipped, pending, tokens, grants, acked, asks>>

\* postgres: job_complete, job_complete_one, job_finish
CompleteNew(g) ==
    /\ new.state = "held" /\ new.token = g.token
    /\ new' = [new EXCEPT !.state = "done", !.token = 0]
    /\ UNCHANGED <<log, shipped, pending, tokens, grants, acked, reaps, asks>>

-----------------------------------------------------------------------------
Next ==
    \/ Start \/ StartAgain \/ Claim \/ Reap \/ Ship \/ Answer \/ CutOff
    \/ Promote \/ ClaimNew \/ ReapNew
    \/ \E g \in grants : Complete(g) \/ CompleteNew(g)

Safety == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
NoAckedLoss ==
    IsPromoted => /\ "start" \in acked => new.state # "none"
                  /\ "done" \in acked => new.state = "done"
RECURSIVE Size(_)
Size(set) == IF set = {} THEN 0 ELSE 1 + Size(set \ {CHOOSE g \in set : TRUE})
StartsHaveACause == Size(grants) <= 1 + reaps
FencesGrow ==
    \A a, b \in grants :
        a.timeline < b.timeline \/ (a.timeline = b.timeline /\ a.nth < b.nth) => a.fence < b.fence
NoSharedToken == \A a, b \in grants : a.token = b.token => a = b
=============================================================================
