package controlplane

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// dataDir is the folder of one cluster, locked while the cluster runs.
type dataDir struct {
	path      string
	temporary bool
	lock      *os.File
}

const lockName = "berth-local.lock"

// openDataDir makes or takes over the folder. A folder that a living process uses is refused; what a
// dead one left is cleared, since the cluster in it was a throw-away.
func openDataDir(path string) (*dataDir, error) {
	d := &dataDir{path: path}
	if path == "" {
		temporary, err := os.MkdirTemp("", "berth-local-")
		if err != nil {
			return nil, fmt.Errorf("make a temporary data directory: %w; set TMPDIR to a folder with space, or name one", err)
		}
		d.path, d.temporary = temporary, true
	} else if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", path, err)
	}
	file, err := os.OpenFile(filepath.Join(d.path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s is not writable: %w", d.path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(file)
		_ = file.Close()
		return nil, fmt.Errorf("data directory %s is in use by process %s; stop it or name another directory", d.path, strings.TrimSpace(string(holder)))
	}
	d.lock = file
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("prepare data directory %s: %w", d.path, err)
	}
	return d, nil
}

// prepare clears what an earlier cluster left and notes who uses the folder now.
func (d *dataDir) prepare() error {
	for _, name := range []string{"etcd", "pki"} {
		if err := os.RemoveAll(filepath.Join(d.path, name)); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(d.path, name), 0o700); err != nil {
			return err
		}
	}
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	return err
}

func (d *dataDir) join(name string) string { return filepath.Join(d.path, name) }

// close frees the folder, and removes it if nobody named it.
func (d *dataDir) close() error {
	err := d.lock.Close()
	if d.temporary {
		return os.RemoveAll(d.path)
	}
	return err
}
