"""The acceptor process: ``lessor node``.

==============  ====================================================================================================
``settings``    what it is told at its start
``disk``        its data folder: the high-water mark, and what a clean shutdown leaves
``scribe``      the thread that writes the mark, so that nobody waits for the disk
``service``     the acceptor, driven by frames, and those who listen to it
``checking``    what it refuses although its types are right
``connection``  one client's connection
``seeding``     how a node that lost its disk asks the others
``web``         health and metrics, over HTTP
``log``         one line an event
``process``     from the command line to the exit code
==============  ====================================================================================================
"""
