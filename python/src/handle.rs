//! Handles to objects on the thread of a session: models, derivatives, likelihoods, correlated
//! fields, fits.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use meshloom::Rank;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::session::{Session, Work};

/// The number of something that a session's thread keeps: what jobs find it by.
pub struct Key<T> {
    number: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T: 'static> Key<T> {
    /// Keeps something on this thread.
    fn keep(work: &mut Work, thing: T) -> Self {
        Key { number: work.keep(thing), kind: PhantomData }
    }

    /// Returns what is kept.
    pub fn get(self, work: &Work) -> Result<Rc<T>, Failure> {
        let kept = work.kept.get(&self.number).cloned().and_then(|kept| kept.downcast::<T>().ok());
        kept.ok_or_else(|| Failure::Panic("what was kept for Python is gone".into()))
    }
}

/// Something on the thread of a session, kept there as long as this is here.
pub struct Handle<T> {
    pub session: Arc<Session>,
    pub key: Key<T>,
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        self.session.release(self.key.number);
    }
}

impl<T: 'static> Handle<T> {
    /// Creates an object on the session's thread, with its description for other threads.
    pub fn make<A: Send + 'static>(
        py: Python<'_>,
        session: &Arc<Session>,
        make: impl FnOnce(&mut Rank) -> Result<(T, A), Failure> + Send + 'static,
    ) -> PyResult<(Self, A)> {
        Self::make_of_work(py, session, move |work| make(&mut work.context))
    }

    /// Creates an object from the state of the session's thread, with its description.
    pub fn make_of_work<A: Send + 'static>(
        py: Python<'_>,
        session: &Arc<Session>,
        make: impl FnOnce(&mut Work) -> Result<(T, A), Failure> + Send + 'static,
    ) -> PyResult<(Self, A)> {
        let (key, about) = session.run(py, move |work| {
            let (thing, about) = make(work)?;
            Ok((Key::keep(work, thing), about))
        })?;
        Ok((Handle { session: session.clone(), key }, about))
    }

    /// Derives an object from this one, with its description, and submits the work to the device.
    pub fn derive<R: 'static, A: Send + 'static>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&mut Work, &T) -> Result<(R, A), Failure> + Send + 'static,
    ) -> PyResult<(Handle<R>, A)> {
        let own = self.key;
        let (key, about) = self.session.run(py, move |work| {
            let own = own.get(work)?;
            let (thing, about) = make(work, &own)?;
            work.context.recorder.submit()?;
            Ok((Key::keep(work, thing), about))
        })?;
        Ok((Handle { session: self.session.clone(), key }, about))
    }

    /// Makes something of this and another thing.
    pub fn join<U: 'static, R: 'static, A: Send + 'static>(
        &self,
        py: Python<'_>,
        other: &Handle<U>,
        join: impl FnOnce(&T, &U) -> Result<(R, A), Failure> + Send + 'static,
    ) -> PyResult<(Handle<R>, A)> {
        let key = self.with_the_ranks_of(other)?;
        self.derive(py, move |work, own| join(own, &*key.get(work)?))
    }

    /// Works with it, and hands the work to the device.
    pub fn with<R: Send + 'static>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Rank, &T) -> Result<R, Failure> + Send + 'static,
    ) -> PyResult<R> {
        let key = self.key;
        self.session.run(py, move |work| {
            let own = key.get(work)?;
            let found = body(&mut work.context, &own);
            work.context.recorder.submit()?;
            found
        })
    }

    /// Returns the key of another thing of the same session.
    ///
    /// # Errors
    /// `ValueError` for what is on other ranks, or on the same ones by another communicator.
    pub fn with_the_ranks_of<U>(&self, other: &Handle<U>) -> PyResult<Key<U>> {
        if Arc::ptr_eq(&self.session, &other.session) {
            return Ok(other.key);
        }
        Err(PyValueError::new_err("the parts belong to different ranks; create all of them with the same comm"))
    }
}
