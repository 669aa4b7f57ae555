package live

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// alive says whether the process runs and is the one that started then.
func alive(pid int, started uint64) bool {
	now, err := StartTime(pid)
	return err == nil && now == started
}

// StartTime of a process in clock ticks since boot (proc(5), stat, field 22).
func StartTime(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name may hold spaces and parentheses; fields count from 3
	// after it.
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: found %d fields after the name, expected 20 or more", pid, len(fields))
	}
	if fields[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
