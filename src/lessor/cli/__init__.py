"""The command line. It promises what the library promises, and that the processes of ``lessor run`` end in time.

One noun a file: ``parser`` says what can be typed, ``main`` turns errors into one line and a code, ``show`` and its
neighbours look at leases, and ``run`` with ``command``, ``guardian``, ``supervisor`` and ``foreground`` holds one.
"""
