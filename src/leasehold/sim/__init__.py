"""A world in virtual time, driven by one seed, that runs the real protocol: acceptors, proposers, holders, schedules.

It proves nothing about sockets, disks or threads: those are played here. What decides is the code that runs in
production. ``world`` holds it together, ``checks`` watches, ``run`` goes through many seeds.
"""
