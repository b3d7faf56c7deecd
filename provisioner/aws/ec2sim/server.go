package ec2sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server simulates the AWS services of one account in one region. Its methods
// may be called concurrently.
type Server struct {
	opts    Options
	types   *typeTable
	images  *imageStore
	journal journal

	mu           sync.Mutex // guards everything below
	started      time.Time
	serial       uint64
	requests     uint64
	instances    map[string]*instance
	order        []*instance // by launch; purged ones leave
	subnets      []*subnetState
	groups       []SecurityGroup
	reservations []CapacityReservation
	placements   []PlacementGroup
	templates    map[string]*launchTemplate // by name
	templateIDs  map[string]string          // id to name
	tokens       tokenTable
	pools        *poolTable
	prices       []product
	iam          iamState
	faults       faultTable
	buckets      map[string]*bucket
	due          dueQueue
	queues       map[string]*queue // by name
	subscribers  map[*subscriber]struct{}

	wake    chan struct{} // tells the loop that the next due time may have changed
	stop    context.CancelFunc
	done    sync.WaitGroup
	closing context.Context
	http    []*http.Server // guarded by mu
}

// New makes a server and starts its clock loop; Close ends it. Faults in the
// options are reported all at once.
func New(opts Options) (*Server, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("check ec2sim options: %w", err)
	}
	s := &Server{
		opts:        opts,
		started:     opts.Clock.Now(),
		instances:   map[string]*instance{},
		templates:   map[string]*launchTemplate{},
		templateIDs: map[string]string{},
		tokens:      newTokenTable(),
		buckets:     map[string]*bucket{},
		subscribers: map[*subscriber]struct{}{},
		queues:      map[string]*queue{},
		wake:        make(chan struct{}, 1),
	}
	s.types = newTypeTable(*opts.Catalog, opts.Region)
	s.prices = priceList(*opts.Catalog)
	s.pools = newPoolTable(opts.Seed, s.types)
	s.images = newImageStore(opts.AccountID, s.started)
	for _, sn := range opts.World.Subnets {
		s.subnets = append(s.subnets, newSubnetState(sn))
	}
	s.groups = append(s.groups, opts.World.SecurityGroups...)
	for _, img := range opts.World.Images {
		s.images.put(img)
	}
	for name, value := range opts.World.Parameters {
		s.images.parameters[name] = value
	}
	for _, r := range opts.World.CapacityReservations {
		r.fill(opts.AccountID)
		s.reservations = append(s.reservations, r)
	}
	s.placements = append(s.placements, opts.World.PlacementGroups...)
	s.iam = newIAMState(opts.World, s.started)
	for _, step := range opts.Script.Steps {
		s.due.push(s.started.Add(step.At.Duration), func() { s.play(step) })
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.done.Go(s.loop)
	return s, nil
}

// Start serves on addr, such as 127.0.0.1:0, and returns the URL to give to the
// SDK. Close ends it.
func (s *Server) Start(addr string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that Close either sees this server or has come before
	if s.closing.Err() != nil {
		return "", errors.New("start ec2sim: the server is closed")
	}
	listener, err := new(net.ListenConfig).Listen(s.closing, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", addr, err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.http = append(s.http, server)
	s.done.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.stop() // nobody can reach the server any more: end the subscriptions too
		}
	})
	return "http://" + listener.Addr().String(), nil
}

// Close ends the listeners, the loop and the subscriptions, and waits for them.
func (s *Server) Close() {
	s.stop()
	s.mu.Lock()
	servers := s.http
	s.http = nil
	s.mu.Unlock()
	for _, server := range servers {
		_ = server.Close() // closes the listener; nothing to save
	}
	s.done.Wait()
}

// Now returns the time on the server's clock.
func (s *Server) Now() time.Time { return s.opts.Clock.Now() }

// loop advances the simulation whenever something is due.
func (s *Server) loop() {
	for {
		s.mu.Lock()
		s.advance()
		at, any := s.due.next()
		wait := at.Sub(s.opts.Clock.Now())
		s.mu.Unlock()
		if !any {
			select {
			case <-s.closing.Done():
				return
			case <-s.wake:
			}
			continue
		}
		timer := s.opts.Clock.NewTimer(max(wait, 0))
		select {
		case <-s.closing.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// advance does everything that is due by now. Requests call it first, so replies
// never depend on when the loop gets to run. The caller holds mu.
func (s *Server) advance() {
	now := s.opts.Clock.Now()
	for {
		act, ok := s.due.pop(now)
		if !ok {
			return
		}
		act()
	}
}

// after plans act. The caller holds mu.
func (s *Server) after(d time.Duration, act func()) {
	s.due.push(s.opts.Clock.Now().Add(d), act)
	select {
	case s.wake <- struct{}{}:
	default: // the loop is going to look anyway
	}
}
