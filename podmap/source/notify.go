package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Notify calls changed when one of the files was created, replaced or written, until ctx is done. Their directories must
// exist, and files that are replaced continue to be watched. It returns an error where the kernel cannot watch.
func Notify(ctx context.Context, paths []string, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	names := map[uint32]map[string]bool{} // by watch; a directory has one watch
	for _, path := range paths {
		dir := filepath.Dir(path)
		w, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE|unix.IN_ONLYDIR)
		if err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		if names[uint32(w)] == nil {
			names[uint32(w)] = map[string]bool{}
		}
		names[uint32(w)][filepath.Base(path)] = true
	}
	buffer := make([]byte, 16<<10) // the longest event has 272 bytes
	for {
		n, err := events.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch files: %w", err)
		}
		// An event is a watch, a mask, a cookie, the length of the name, and the name filled with zeros.
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			watch, mask := binary.NativeEndian.Uint32(rest), binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:end], []byte{0})
			switch {
			case mask&unix.IN_IGNORED != 0:
				return errors.New("a watched directory was removed")
			case mask&unix.IN_Q_OVERFLOW != 0 || names[watch][string(name)]:
				changed()
			}
			rest = rest[end:]
		}
	}
}
