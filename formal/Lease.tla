------------------------------- MODULE Lease -------------------------------
(***************************************************************************)
(* Leases, tokens and the reaper.                                          *)
(*                                                                         *)
(* A claim takes free jobs under a token that its client made, counts the  *)
(* attempt, and writes one lease for all of them.  Processes die, stop and *)
(* go on after their lease has ended, and answers of claims get lost.  A   *)
(* write is accepted only if the job's row bears the writer's token.       *)
(*                                                                         *)
(* Each action is one statement: it locks the rows that it changes and     *)
(* compares the token in the locked row, so that others see all of it or   *)
(* nothing.  Rows that another transaction has locked are skipped; Reap    *)
(* shows that by leaving out any of its rows.                              *)
(*                                                                         *)
(* Left out: due times and priorities, the count of killed workers (it     *)
(* ends jobs sooner than attempts alone do), cancel and delete from        *)
(* outside, and clocks: a lease may end at any moment, in any order.       *)
(*                                                                         *)
(* Properties:                                                             *)
(*   OneEffect          a job completes at most once                       *)
(*   NoStaleWrite       no write is accepted from a claim that is not the  *)
(*                      job's newest                                       *)
(*   OnlyExpiredReaped  nothing is taken from a lease that has not expired *)
(*   NoOverlap          two handlers with live leases never have one job   *)
(*   HeldByALease       a claimed job has a lease, so that it can expire   *)
(*   AttemptsBounded    handlers start no more often than attempts allow   *)
(*   DeadAreReplaced    a job whose worker died is ended or claimed again  *)
(*   AllEnd             every job ends                                     *)
(***************************************************************************)
EXTENDS Naturals, TLC

CONSTANTS Workers, Jobs,
          MaxAttempts,   \* starts that a job is given
          MaxClaims,     \* tokens that are ever made
          MaxDeaths,     \* processes that die, each replaced by a new one
          MaxLapses,     \* leases that end while their worker lives: it was stopped, or cut off
          Bug

VARIABLES
    queue,   \* the live row of a job: state, token (0 is none), attempt; or how the job ended
    lease,   \* by token: state, worker, the jobs that it names
    claims,  \* tokens made so far
    runs,    \* what processes remember: attempts that were handed to them and have not ended
    lost,    \* tokens whose answer was lost; their worker knows that, and asks
    deaths, lapses,
    starts,  \* handlers started, by job
    effects, \* completions accepted, by job
    stale,   \* whether a write from an older claim was accepted
    robbed,  \* whether a job was taken from a lease that had not expired
    seen     \* leases that a reaper found expired; only a broken one acts on it later

vars == <<queue, lease, claims, runs, lost, deaths, lapses, starts, effects, stale, robbed, seen>>

Tokens == 1 .. MaxClaims
Ended == {"completed", "failed"}
NoLease == [state |-> "none", worker |-> "nobody", jobs |-> {}]

Init ==
    /\ queue = [j \in Jobs |-> [state |-> "free", token |-> 0, attempt |-> 0, newest |-> 0]]
    /\ lease = [t \in Tokens |-> NoLease]
    /\ claims = 0
    /\ runs = {}
    /\ lost = {}
    /\ deaths = 0
    /\ lapses = 0
    /\ starts = [j \in Jobs |-> 0]
    /\ effects = [j \in Jobs |-> 0]
    /\ stale = FALSE
    /\ robbed = FALSE
    /\ seen = {}

Bears(j, t) == queue[j].state = "held" /\ queue[j].token = t

(* Whether a write by attempt r is accepted. *)
Proven(r) ==
    CASE Bug = "finish-without-token" -> queue[r.job].state = "held"
      [] Bug = "fence-by-worker" ->
            queue[r.job].state = "held" /\ lease[queue[r.job].token].worker = r.worker
      [] OTHER -> Bears(r.job, r.token)

Freed(j) == [queue[j] EXCEPT !.state = "free", !.token = 0]
Spent(j) == queue[j].attempt >= MaxAttempts
(* A job that is given another attempt, or has failed with its last one. *)
Returned(j) == IF Spent(j) THEN [Freed(j) EXCEPT !.state = "failed"] ELSE Freed(j)
Refunded(j) == [Freed(j) EXCEPT !.attempt = @ - 1]

-----------------------------------------------------------------------------
\* postgres: job_claim, job_claim_queues
\* sqlite: job_claim_poll, job_claim_take, job_claim_lease
Claim(w, taken, arrives) ==
    /\ claims < MaxClaims
    /\ taken # {}
    /\ \A j \in taken : queue[j].state = "free" \/ (Bug = "claim-without-recheck" /\ queue[j].state = "held")
    /\ LET t == claims + 1 IN
        /\ claims' = t
        /\ queue' = [j \in Jobs |->
             IF j \in taken
             THEN [state |-> "held", token |-> t, newest |-> t,
                   attempt |-> queue[j].attempt + IF Bug = "attempt-counted-late" THEN 0 ELSE 1]
             ELSE queue[j]]
        /\ lease' = [lease EXCEPT ![t] = [state |-> "live", worker |-> w, jobs |-> taken]]
        /\ IF arrives
           THEN /\ runs' = runs \union {[worker |-> w, job |-> j, token |-> t, runs |-> FALSE] : j \in taken}
                /\ UNCHANGED lost
           ELSE /\ lost' = lost \union {t}
                /\ UNCHANGED runs
    /\ UNCHANGED <<deaths, lapses, starts, effects, stale, robbed, seen>>

\* no statement: the worker calls the handler; one that was stopped meanwhile does so too late
Start(r) ==
    /\ r \in runs /\ ~r.runs
    /\ runs' = (runs \ {r}) \union {[r EXCEPT !.runs = TRUE]}
    /\ starts' = [starts EXCEPT ![r.job] = @ + 1]
    /\ UNCHANGED <<queue, lease, claims, lost, deaths, lapses, effects, stale, robbed, seen>>

\* postgres: job_finish, job_complete, job_complete_one
\* sqlite: job_finish_held, job_finish_end, queue_drop
Complete(r) ==
    /\ r \in runs /\ r.runs
    /\ runs' = runs \ {r}
    /\ IF Proven(r)
       THEN /\ queue' = [queue EXCEPT ![r.job] = [Freed(r.job) EXCEPT !.state = "completed"]]
            /\ effects' = [effects EXCEPT ![r.job] = @ + 1]
            /\ stale' = (stale \/ r.token # queue[r.job].newest)
       ELSE UNCHANGED <<queue, effects, stale>>
    /\ UNCHANGED <<lease, claims, lost, deaths, lapses, starts, robbed, seen>>

\* postgres: job_finish
\* sqlite: job_finish_held, job_finish_return, job_finish_error
Retry(r) ==
    /\ r \in runs /\ r.runs
    /\ runs' = runs \ {r}
    /\ IF Proven(r)
       THEN /\ queue' = [queue EXCEPT ![r.job] =
                 IF Bug = "attempt-counted-late" /\ ~Spent(r.job)
                 THEN [Freed(r.job) EXCEPT !.attempt = @ + 1]
                 ELSE Returned(r.job)]
            /\ stale' = (stale \/ r.token # queue[r.job].newest)
       ELSE UNCHANGED <<queue, stale>>
    /\ UNCHANGED <<lease, claims, lost, deaths, lapses, starts, effects, robbed, seen>>

(* An attempt that has not started goes back and costs nothing. *)
\* postgres: job_finish
\* sqlite: job_finish_held, job_finish_return
Release(r) ==
    /\ r \in runs /\ (~r.runs \/ Bug = "started-work-refunded")
    /\ runs' = runs \ {r}
    /\ queue' = IF Proven(r) THEN [queue EXCEPT ![r.job] = Refunded(r.job)] ELSE queue
    /\ UNCHANGED <<lease, claims, lost, deaths, lapses, starts, effects, stale, robbed, seen>>

(* What a claim without an answer took goes back, found by the token that the client made. *)
\* postgres: lease_release
\* sqlite: lease_release, lease_drop
ReleaseUnanswered(t) ==
    /\ t \in lost
    /\ lost' = lost \ {t}
    /\ queue' = IF lease[t].state = "none" THEN queue
                ELSE [j \in Jobs |-> IF Bears(j, t) THEN Refunded(j) ELSE queue[j]]
    /\ lease' = [lease EXCEPT ![t] = NoLease]
    /\ UNCHANGED <<claims, runs, deaths, lapses, starts, effects, stale, robbed, seen>>

(* Leases whose jobs have all ended are removed. *)
\* postgres: lease_free, job_complete, job_finish
\* sqlite: lease_free, lease_drop
FreeLease(t) ==
    /\ lease[t].state # "none"
    /\ \A j \in lease[t].jobs : ~Bears(j, t)
       \/ (Bug = "lease-freed-with-a-held-job" /\ ~\E r \in runs : r.token = t /\ r.job = j)
    /\ lease' = [lease EXCEPT ![t] = NoLease]
    /\ UNCHANGED <<queue, claims, runs, lost, deaths, lapses, starts, effects, stale, robbed, seen>>

(* An expired lease that nobody reaped may be renewed: nobody else can have its token. *)
\* postgres: lease_renew
\* sqlite: lease_renew
Renew(t) ==
    /\ lease[t].state = "expired"
    /\ \E r \in runs : r.token = t
    /\ lease' = [lease EXCEPT ![t].state = "live"]
    /\ UNCHANGED <<queue, claims, runs, lost, deaths, lapses, starts, effects, stale, robbed, seen>>

Alive(t) == t \in lost \/ \E r \in runs : r.token = t

\* no statement: a lease ends by the database's clock; that of a living worker only as often as MaxLapses
Expire(t) ==
    /\ lease[t].state = "live"
    /\ Alive(t) => lapses < MaxLapses
    /\ lapses' = IF Alive(t) THEN lapses + 1 ELSE lapses
    /\ lease' = [lease EXCEPT ![t].state = "expired"]
    /\ UNCHANGED <<queue, claims, runs, lost, deaths, starts, effects, stale, robbed, seen>>

(* Takes back what an expired lease holds; rows that others have locked stay, with the lease, for the next time. *)
\* postgres: lease_reap
\* sqlite: lease_reap, lease_reap_jobs, lease_reap_return, lease_reap_fail
Reap(t, reaped) ==
    /\ IF Bug = "reap-without-recheck" THEN t \in seen /\ lease[t].state # "none" ELSE lease[t].state = "expired"
    /\ Bug # "no-reaper"
    /\ LET bearing == {j \in lease[t].jobs :
                        CASE Bug = "reap-by-name" -> queue[j].state = "held"
                          [] Bug = "reap-revives-ended" -> Bears(j, t) \/ queue[j].state = "completed"
                          [] OTHER -> Bears(j, t)}
       IN /\ reaped \subseteq bearing
          /\ reaped = {} => bearing = {}
          /\ queue' = [j \in Jobs |-> IF j \in reaped /\ Bug # "reap-keeps-the-token" THEN Returned(j) ELSE queue[j]]
          /\ robbed' = (robbed \/ \E j \in reaped : queue[j].token # 0 /\ lease[queue[j].token].state = "live")
          /\ lease' = [lease EXCEPT ![t] = IF reaped = bearing THEN NoLease ELSE [@ EXCEPT !.jobs = bearing \ reaped]]
    /\ seen' = seen \ {t}
    /\ UNCHANGED <<claims, runs, lost, deaths, lapses, starts, effects, stale>>

\* no statement: only a broken reaper reads first and acts later
See(t) ==
    /\ Bug = "reap-without-recheck"
    /\ lease[t].state = "expired"
    /\ seen' = seen \union {t}
    /\ UNCHANGED <<queue, lease, claims, runs, lost, deaths, lapses, starts, effects, stale, robbed>>

\* no statement: a process is killed, with all that it remembers; another takes its place
Die(w) ==
    /\ deaths < MaxDeaths
    /\ \E r \in runs : r.worker = w
    /\ deaths' = deaths + 1
    /\ runs' = {r \in runs : r.worker # w}
    /\ lost' = {t \in lost : lease[t].worker # w}
    /\ UNCHANGED <<queue, lease, claims, lapses, starts, effects, stale, robbed, seen>>

-----------------------------------------------------------------------------
Next ==
    \/ \E w \in Workers, taken \in SUBSET Jobs, arrives \in BOOLEAN : Claim(w, taken, arrives)
    \/ \E r \in runs : Start(r) \/ Complete(r) \/ Retry(r) \/ Release(r)
    \/ \E t \in Tokens :
        \/ ReleaseUnanswered(t) \/ FreeLease(t) \/ Renew(t) \/ Expire(t) \/ See(t)
        \/ \E reaped \in SUBSET lease[t].jobs : Reap(t, reaped)
    \/ \E w \in Workers : Die(w)

(* Living workers claim, run and end what they hold; leases that nobody renews end, and are reaped. *)
Fairness ==
    /\ WF_vars(\E w \in Workers, taken \in SUBSET Jobs : Claim(w, taken, TRUE))
    /\ WF_vars(\E r \in runs : Start(r))
    /\ WF_vars(\E r \in runs : Complete(r))
    /\ \A t \in Tokens :
        /\ WF_vars(ReleaseUnanswered(t))
        /\ WF_vars(~Alive(t) /\ Expire(t))
        /\ WF_vars(Reap(t, {j \in lease[t].jobs : Bears(j, t)}))

(* Workers and jobs are alike; for liveness TLC must tell them apart. *)
Alike == Permutations(Workers) \union Permutations(Jobs)

Safety == Init /\ [][Next]_vars
Spec == Safety /\ Fairness

-----------------------------------------------------------------------------
OneEffect == \A j \in Jobs : effects[j] <= 1
NoStaleWrite == ~stale
OnlyExpiredReaped == ~robbed
HasLiveLease(r) == lease[r.token].state = "live" /\ r.job \in lease[r.token].jobs
NoOverlap == \A a, b \in runs : a.job = b.job /\ a.runs /\ b.runs /\ HasLiveLease(a) /\ HasLiveLease(b) => a = b
HeldByALease ==
    \A j \in Jobs : queue[j].state = "held" => LET l == lease[queue[j].token] IN l.state # "none" /\ j \in l.jobs
AttemptsBounded == \A j \in Jobs : starts[j] <= MaxAttempts

HeldByTheDead(j, t) == Bears(j, t) /\ ~Alive(t)
DeadAreReplaced == \A j \in Jobs, t \in Tokens : HeldByTheDead(j, t) ~> ~Bears(j, t)
(* With all tokens used up nobody could claim, which says nothing about leases. *)
AllEnd == <>(claims = MaxClaims \/ \A j \in Jobs : queue[j].state \in Ended)
=============================================================================
