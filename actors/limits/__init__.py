"""The broker's rules, pure: functions of (state, event, now)."""
