------------------------------- MODULE Lines -------------------------------
(***************************************************************************)
(* A line of the event log: every committed event is read once, in order.  *)
(*                                                                         *)
(* Publishers draw places from the line's sequence and commit in any       *)
(* order, or roll back, so that a reader sees gaps that may still be       *)
(* filled.  Drawing a place locks the sequence until the transaction ends. *)
(* A reader takes what is dense.  At a gap it remembers the last place     *)
(* that it has seen, then asks who holds the lock, waits until those are   *)
(* gone, and reads again: what is missing up to that place was rolled      *)
(* back.                                                                   *)
(*                                                                         *)
(* The handler's rows and the position commit together, under the token of *)
(* the line and from the position that was read.  A process that was       *)
(* stopped past its lease goes on with the token that it had, and answers  *)
(* of commits get lost.                                                    *)
(*                                                                         *)
(* On SQLite publishers do not overlap, so there are no gaps to wait for.  *)
(*                                                                         *)
(* Left out: patterns, events that are parked, retention, several lines    *)
(* (they share nothing), prepared transactions (they hold the same lock),  *)
(* and restarts of the server (a reader then forgets what it has settled). *)
(*                                                                         *)
(* Properties:                                                             *)
(*   NoneSkipped   no committed event is behind the position and unread    *)
(*   InOrder       events are applied in the order of their places, once   *)
(*   NoStaleWrite  no write is accepted from a process that lost the line  *)
(*   ReadsAll      every committed event is applied in the end             *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Publishers, Readers,
          MaxTakeovers,  \* how often a line is taken from a process that has it
          MaxLost,       \* answers of commits that get lost
          Bug

VARIABLES
    drawn,     \* the last place drawn from the sequence
    pub,       \* by publisher: its transaction and its place
    line,      \* the row of the position: token, position
    tokens,    \* tokens made so far
    reader,    \* by process: token, where it is, and what it has read
    applied,   \* the places whose rows were committed by the handler, in order
    takeovers, lost, stale

vars == <<drawn, pub, line, tokens, reader, applied, takeovers, lost, stale>>

Places == 1 .. Cardinality(Publishers)
Committed == {pub[p].place : p \in {q \in Publishers : pub[q].at = "committed"}}
Open == {p \in Publishers : pub[p].at = "open"}
(* What pg_locks shows. *)
Holders == IF Bug = "place-without-lock" THEN {} ELSE Open
Max(set) == CHOOSE n \in set : \A other \in set : other <= n
NotHolding == [token |-> 0, at |-> "idle", position |-> 0, block |-> {}, seen |-> 0, waits |-> {}, settled |-> 0]

Init ==
    /\ drawn = 0
    /\ pub = [p \in Publishers |-> [at |-> "idle", place |-> 0]]
    /\ line = [token |-> 0, position |-> 0]
    /\ tokens = 0
    /\ reader = [r \in Readers |-> NotHolding]
    /\ applied = <<>>
    /\ takeovers = 0
    /\ lost = 0
    /\ stale = FALSE

-----------------------------------------------------------------------------
\* postgres: event_publish
\* sqlite: log_next, log_append
Draw(p) ==
    /\ pub[p].at = "idle"
    /\ drawn' = drawn + 1
    /\ pub' = [pub EXCEPT ![p] = [at |-> "open", place |-> drawn + 1]]
    /\ UNCHANGED <<line, tokens, reader, applied, takeovers, lost, stale>>

\* no statement: the publisher's transaction commits or is rolled back
EndPublish(p, how) ==
    /\ pub[p].at = "open"
    /\ pub' = [pub EXCEPT ![p].at = how]
    /\ UNCHANGED <<drawn, line, tokens, reader, applied, takeovers, lost, stale>>

-----------------------------------------------------------------------------
(* Takes a line that nobody has, or whose holder did not renew it. *)
\* postgres: line_claim
\* sqlite: line_claim
Take(r) ==
    /\ line.token = 0 \/ takeovers < MaxTakeovers
    /\ reader[r].token = 0
    /\ takeovers' = IF line.token = 0 THEN takeovers ELSE takeovers + 1
    /\ tokens' = tokens + 1
    /\ line' = [line EXCEPT !.token = tokens + 1]
    \* What a process knows to be rolled back it keeps.
    /\ reader' = [reader EXCEPT ![r] =
         [NotHolding EXCEPT !.token = tokens + 1, !.position = line.position, !.settled = reader[r].settled]]
    /\ UNCHANGED <<drawn, pub, applied, lost, stale>>

Ahead(r) == {n \in Committed : n > reader[r].position}
(* Up to `settled` nothing is missing that can still come; above it, nothing is missing at all. *)
Dense(r, settled) == {n \in Ahead(r) : \A m \in Places : settled < m /\ reader[r].position < m /\ m < n => m \in Committed}

(* Reads what is dense, or stops at a gap. *)
\* postgres: line_read, line_read_dense
\* sqlite: line_read
Read(r) ==
    /\ reader[r].token # 0 /\ reader[r].at = "idle" /\ Ahead(r) # {}
    /\ LET settled == IF Bug = "gap-is-a-rollback" THEN Max(Ahead(r)) ELSE reader[r].settled
           dense == Dense(r, settled)
       IN reader' = [reader EXCEPT ![r] =
            IF dense # {}
            THEN [@ EXCEPT !.at = "handling", !.block = dense]
            ELSE [@ EXCEPT !.at = IF Bug = "holders-before-place" /\ @ = "idle" THEN "waiting" ELSE "gap",
                           !.seen = Max(Ahead(r))]]
    /\ UNCHANGED <<drawn, pub, line, tokens, applied, takeovers, lost, stale>>

(* Only a broken reader asks for holders while it has not read yet. *)
\* no statement: see line_holders
AskFirst(r) ==
    /\ Bug = "holders-before-place" /\ reader[r].token # 0 /\ reader[r].at = "idle"
    /\ reader[r].waits # Holders
    /\ reader' = [reader EXCEPT ![r].waits = Holders]
    /\ UNCHANGED <<drawn, pub, line, tokens, applied, takeovers, lost, stale>>

(* Asks who may still fill the gap, after the last place was remembered. *)
\* postgres: line_holders
\* sqlite: line_holders
Ask(r) ==
    /\ reader[r].at = "gap"
    /\ reader' = [reader EXCEPT ![r].at = "waiting", ![r].waits = Holders]
    /\ UNCHANGED <<drawn, pub, line, tokens, applied, takeovers, lost, stale>>

(* Waits for those, and not for newcomers. *)
\* postgres: line_holders
\* sqlite: line_holders
Settle(r) ==
    /\ reader[r].at = "waiting" /\ reader[r].waits \intersect Holders = {}
    /\ Bug # "gaps-never-settle"
    /\ reader' = [reader EXCEPT ![r] = [@ EXCEPT !.at = "idle", !.waits = {},
         !.settled = IF Bug = "settles-what-came-later" THEN Max(Ahead(r)) ELSE reader[r].seen]]
    /\ UNCHANGED <<drawn, pub, line, tokens, applied, takeovers, lost, stale>>

RECURSIVE Sorted(_)
Sorted(set) == IF set = {} THEN <<>> ELSE LET last == Max(set) IN Append(Sorted(set \ {last}), last)

(* Commits the handler's rows with the position. One that is refused reads where its line is, or has lost it. *)
\* postgres: line_advance, line_position
\* sqlite: line_advance, line_position
Advance(r, answered) ==
    /\ reader[r].at = "handling"
    /\ answered \/ lost < MaxLost
    /\ lost' = IF answered THEN lost ELSE lost + 1
    /\ LET isMine == line.token = reader[r].token \/ Bug = "advance-without-token"
           isThere == line.position = reader[r].position \/ Bug = "advance-without-from"
       IN IF isMine /\ isThere
          THEN /\ line' = [line EXCEPT !.position = Max(reader[r].block)]
               /\ applied' = applied \o Sorted(reader[r].block)
               /\ stale' = (stale \/ line.token # reader[r].token)
               /\ reader' = [reader EXCEPT ![r] = [@ EXCEPT !.at = "idle", !.block = {},
                   !.position = IF answered THEN Max(reader[r].block) ELSE @]]
          ELSE /\ reader' = [reader EXCEPT ![r] = IF isMine
                               THEN [@ EXCEPT !.at = "idle", !.block = {}, !.position = line.position]
                               ELSE [NotHolding EXCEPT !.settled = reader[r].settled]]
               /\ UNCHANGED <<line, applied, stale>>
    /\ UNCHANGED <<drawn, pub, tokens, takeovers>>

(* A process learns by its heartbeat that it has lost the line. *)
\* postgres: line_renew
\* sqlite: line_renew
Renew(r) ==
    /\ reader[r].token # 0 /\ reader[r].token # line.token
    /\ reader' = [reader EXCEPT ![r] = [NotHolding EXCEPT !.settled = reader[r].settled]]
    /\ UNCHANGED <<drawn, pub, line, tokens, applied, takeovers, lost, stale>>

-----------------------------------------------------------------------------
Next ==
    \/ \E p \in Publishers : Draw(p) \/ \E how \in {"committed", "rolled back"} : EndPublish(p, how)
    \/ \E r \in Readers :
        \/ Take(r) \/ Read(r) \/ AskFirst(r) \/ Ask(r) \/ Settle(r) \/ Renew(r)
        \/ \E answered \in BOOLEAN : Advance(r, answered)

(* Publishers and readers are alike; for liveness TLC must tell them apart. *)
Alike == Permutations(Publishers) \union Permutations(Readers)

Safety == Init /\ [][Next]_vars

Fairness ==
    /\ \A p \in Publishers : WF_vars(\E how \in {"committed", "rolled back"} : EndPublish(p, how))
    /\ \A r \in Readers :
        /\ WF_vars(Take(r)) /\ WF_vars(Read(r)) /\ WF_vars(Ask(r)) /\ WF_vars(Settle(r)) /\ WF_vars(Renew(r))
        /\ WF_vars(Advance(r, TRUE))

Spec == Safety /\ Fairness

-----------------------------------------------------------------------------
Applied == {applied[i] : i \in 1 .. Len(applied)}
NoneSkipped == \A n \in Committed : n <= line.position => n \in Applied
InOrder == \A i \in 1 .. Len(applied) - 1 : applied[i] < applied[i + 1]
NoStaleWrite == ~stale
ReadsAll == \A n \in Places : (n \in Committed) ~> (n \in Applied)
=============================================================================
