package kind

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Too little of anything is named at once, with what is needed and what mends it.
func TestRoomNamesAllThatLacks(t *testing.T) {
	enough := room{inotifyLimit: 128, inotifyUsed: 20, memory: 4 << 30, disk: 10 << 30, diskAt: "/d"}
	require.NoError(t, enough.lacks(6))
	full := room{inotifyLimit: 128, inotifyUsed: 66, memory: 1 << 30, disk: 1 << 30, diskAt: "/d"}
	err := full.lacks(6)
	require.ErrorContains(t, err, "found 66 of 128 in use, 6 nodes take 93 more: sysctl -w fs.inotify.max_user_instances=1024")
	require.ErrorContains(t, err, "memory: found 1Gi free, 6 nodes take 1300Mi")
	require.ErrorContains(t, err, "disk: found 1Gi left in /d, 6 nodes take 2700Mi")
}

func TestInotifyInstancesAreCounted(t *testing.T) {
	before := inotifyUsed()
	var ours []int
	for range 20 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		require.NoError(t, err)
		ours = append(ours, fd)
	}
	during := inotifyUsed()
	for _, fd := range ours {
		require.NoError(t, unix.Close(fd))
	}
	require.InDelta(t, 20, during-before, 15, "others come and go")
}
