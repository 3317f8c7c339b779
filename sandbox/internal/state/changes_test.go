package state

import (
	"reflect"
	"testing"
	"time"
)

func TestChangesLeaveTheRestAlone(t *testing.T) {
	t.Parallel()
	had := map[string]string{"a": "1", "b": "2"}
	st := &Stored{Spec: Spec{CPUs: 1, Memory: 512, Lifetime: time.Hour, IdleStop: time.Minute}, Labels: had, Ran: time.Minute}
	memory, none := int64(1024), time.Duration(0)
	(&Changes{Memory: &memory, Labels: map[string]string{"c": "3"}, RemoveLabels: []string{"a", "nosuch"}}).Apply(st)
	if st.CPUs != 1 || st.Memory != 1024 || st.Lifetime != time.Hour || st.IdleStop != time.Minute || st.Ran != time.Minute || !reflect.DeepEqual(st.Labels, map[string]string{"b": "2", "c": "3"}) {
		t.Errorf("%+v", st)
	}
	if len(had) != 2 {
		t.Error("the labels before are changed in place")
	}
	if (&Changes{Keep: true}).Apply(st); st.Ran != 0 || st.Lifetime != time.Hour {
		t.Errorf("kept: %+v", st)
	}
	st.Ran = time.Minute
	if (&Changes{Lifetime: &none}).Apply(st); st.Ran != 0 || st.Lifetime != 0 {
		t.Errorf("without a limit: %+v", st)
	}
	bare := new(Stored)
	if (&Changes{Labels: map[string]string{"x": "y"}}).Apply(bare); bare.Labels["x"] != "y" {
		t.Errorf("a first label: %+v", bare)
	}
}
