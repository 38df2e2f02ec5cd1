//! Data sets of a likelihood that share a model.

use super::term::{Term, TermAt};
use crate::inference::error::Result;
use crate::operators::{Linearization, Model, Space, Vector};
use crate::rank::Rank;

/// Terms after one model that they share, which is evaluated once for all.
#[derive(Clone)]
pub(super) struct Group {
    /// The model; a single term has it in itself.
    pub shared: Option<Model>,
    pub terms: Vec<Term>,
    /// Domain of the shared model, or of all terms.
    pub domain: Space,
}

impl Group {
    /// Returns the values that terms take parts of.
    pub fn values(&self, rank: &mut Rank, x: &Vector) -> Result<Vector> {
        let own = x.part(&self.domain, "likelihood")?;
        Ok(self.shared.as_ref().map_or_else(|| Ok(own.clone()), |shared| shared.value(rank, &own))?)
    }

    /// Returns the terms with the shared model in each.
    pub fn apart(&self) -> Result<Vec<Term>> {
        let Some(shared) = &self.shared else { return Ok(self.terms.clone()) };
        self.terms.iter().map(|term| Ok(term.amend(&shared.giving(term.domain())?)?)).collect()
    }

    /// Computes the derivatives at a point.
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<GroupAt> {
        let own = x.part(&self.domain, "likelihood")?;
        let shared = self.shared.as_ref().map(|shared| shared.at(rank, &own)).transpose()?;
        let values = shared.as_ref().map_or(&own, |shared| &shared.value);
        let one = |term: &Term| {
            let own = values.part(term.domain(), "likelihood")?;
            Ok(term.at(rank, &own)?)
        };
        let terms = self.terms.iter().map(one).collect::<Result<_>>()?;
        Ok(GroupAt { shared, terms, domain: self.domain.clone() })
    }
}

/// The derivatives of a [`Group`] at a point.
pub(super) struct GroupAt {
    pub shared: Option<Linearization>,
    pub terms: Vec<TermAt>,
    pub domain: Space,
}

/// Computes `out` as the sum of what `give` computes for parts of it, in the spaces `parts`.
pub(super) fn summed(
    rank: &mut Rank,
    parts: &[&Space],
    out: &mut Vector,
    mut give: impl FnMut(&mut Rank, usize, &mut Vector) -> Result<()>,
) -> Result<()> {
    if let [own] = parts
        && own.len() == out.space().len()
    {
        return give(rank, 0, out);
    }
    let zeros = Vector::zeros(&mut rank.recorder, out.space())?;
    out.copy_from(&mut rank.recorder, &zeros)?;
    for (number, own) in parts.iter().enumerate() {
        let mut found = Vector::joined(&mut rank.recorder, own)?;
        give(rank, number, &mut found)?;
        let mut part = out.part(own, "likelihood")?;
        rank.vector_axpby(1.0, &found, 1.0, &mut part)?;
        out.put(part);
    }
    Ok(())
}

impl GroupAt {
    /// Computes `out` from the cotangents of values that `give` computes for each term.
    pub fn back(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        mut give: impl FnMut(&mut Rank, &TermAt, &mut Vector) -> Result<()>,
    ) -> Result<()> {
        let parts: Vec<&Space> = self.terms.iter().map(|at| at.term.domain()).collect();
        let give = |rank: &mut Rank, number: usize, out: &mut Vector| give(rank, &self.terms[number], out);
        let Some(shared) = &self.shared else { return summed(rank, &parts, out, give) };
        let mut values = Vector::joined(&mut rank.recorder, shared.value.space())?;
        summed(rank, &parts, &mut values, give)?;
        Ok(shared.vjp(rank, &values, out)?)
    }

    /// Returns the tangent of the values for a tangent of latent values.
    pub fn tangent(&self, rank: &mut Rank, v: &Vector) -> Result<Vector> {
        let own = v.part(&self.domain, "likelihood")?;
        let Some(shared) = &self.shared else { return Ok(own) };
        let mut values = Vector::new(&rank.gpu, shared.value.space())?;
        shared.jvp(rank, &own, &mut values)?;
        Ok(values)
    }
}
