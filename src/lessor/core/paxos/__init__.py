"""A lease among 3 or 5 acceptors, without a database: the protocol as pure state machines.

==============  ====================================================================================================
``messages``    what proposers and acceptors say to each other
``ballots``     the numbers that attempts carry, and how many acceptors are a majority
``acceptor``    keeps the leases of one node, and answers
``slot``        what an acceptor keeps about one resource
``queueing``    the queue for it, as one acceptor keeps it
``riders``      what rides on a lease, as one acceptor has it
``starting``    how an acceptor begins: after a crash, a clean shutdown, or the loss of its disk
``proposer``    gets, renews and gives back one lease, by asking all acceptors
``attempt``     one question of it to all acceptors, and what they said
``steps``       what it says to do
``session``     leases that ride on another one: who keeps them, and until when
``merging``     what several acceptors push or show, as one
``marks``       short numbers for long names
==============  ====================================================================================================

None of them reads a clock, draws a number or touches a socket: ``now``, the wall clock and ids are handed in, and what
is to be sent or written is returned. The node process and the simulator drive the very same code.
"""
