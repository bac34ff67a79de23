//! The report of an experiment: assembles text, tables and plots, and writes them as an HTML page
//! and as Markdown with a small SVG for each plot.

use crate::plot::{Bars, Chart, Heat};
use crate::report::page::Page;
use std::fmt::Write as _;
use std::path::Path;

/// A report that is being assembled.
pub struct Paper {
    title: String,
    origin: String,
    parts: Vec<Part>,
    failure: Option<String>,
}

enum Part {
    Heading(String),
    Paragraph(String),
    List(Vec<String>),
    Table(Vec<String>, Vec<Vec<String>>),
    Plots(Vec<(String, Plot)>),
    Code(String),
}

/// A plot of any kind.
pub enum Plot {
    Chart(Chart),
    Bars(Bars),
    Heat(Heat),
}

impl Plot {
    fn svg(&self) -> String {
        match self {
            Self::Chart(it) => it.svg(),
            Self::Bars(it) => it.svg(),
            Self::Heat(it) => it.svg(),
        }
    }

    fn inline(&self) -> String {
        match self {
            Self::Chart(it) => it.inline(),
            Self::Bars(it) => it.inline(),
            Self::Heat(it) => it.inline(),
        }
    }
}

impl Paper {
    /// An empty report.
    pub fn new(title: &str, origin: String) -> Self {
        Self { title: title.to_owned(), origin, parts: Vec::new(), failure: None }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        self.parts.push(Part::Heading(text.to_owned()));
        self
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.parts.push(Part::Paragraph(text.to_owned()));
        self
    }

    /// Adds a list of sentences.
    pub fn list(&mut self, sentences: Vec<String>) -> &mut Self {
        self.parts.push(Part::List(sentences));
        self
    }

    /// Adds a table.
    pub fn table(&mut self, heading: &[&str], rows: Vec<Vec<String>>) -> &mut Self {
        let heading = heading.iter().map(|&cell| cell.to_owned()).collect();
        self.parts.push(Part::Table(heading, rows));
        self
    }

    /// Adds plots beside each other, each with the name of its file.
    pub fn plots(&mut self, plots: Vec<(String, Plot)>) -> &mut Self {
        self.parts.push(Part::Plots(plots));
        self
    }

    /// Adds a command line.
    pub fn code(&mut self, text: &str) -> &mut Self {
        self.parts.push(Part::Code(text.to_owned()));
        self
    }

    /// Records that the experiment shows what should not be.
    pub fn fail(&mut self, text: &str) {
        self.failure = Some(text.to_owned());
    }

    /// What should not be.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes `report.html`, `README.md` and the plots.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        for part in &self.parts {
            if let Part::Plots(plots) = part {
                for (name, plot) in plots {
                    write(&format!("{name}.svg"), &plot.svg())?;
                }
            }
        }
        write("README.md", &self.markdown())?;
        write("report.html", &self.html())
    }

    fn html(&self) -> String {
        let mut page = Page::new(&self.title, &self.origin);
        for part in &self.parts {
            match part {
                Part::Heading(text) => page.heading(text),
                Part::Paragraph(text) => page.paragraph(text),
                Part::List(sentences) => page.notes(sentences),
                Part::Table(heading, rows) => page.table(heading, rows),
                Part::Plots(plots) => page.plots(plots.iter().map(|(_, plot)| plot.inline())),
                Part::Code(text) => page.code(text),
            };
        }
        page.html()
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n", self.title, self.origin);
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        for part in &self.parts {
            text.push('\n');
            // Writing to a text cannot fail.
            let _ = match part {
                Part::Heading(heading) => writeln!(text, "## {heading}"),
                Part::Paragraph(paragraph) => writeln!(text, "{paragraph}"),
                Part::List(sentences) => {
                    sentences.iter().try_for_each(|it| writeln!(text, "- {it}"))
                }
                Part::Table(heading, rows) => {
                    text.push_str(&row(heading));
                    text.push_str(&"|---".repeat(heading.len()));
                    text.push_str("|\n");
                    rows.iter().try_for_each(|cells| write!(text, "{}", row(cells)))
                }
                Part::Plots(plots) => {
                    plots.iter().try_for_each(|(name, _)| writeln!(text, "![{name}]({name}.svg)"))
                }
                Part::Code(code) => writeln!(text, "    {code}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_is_written_twice_with_its_plots() {
        let mut paper = Paper::new("T", "here".into());
        paper.heading("H").list(vec!["One.".into()]).table(&["a", "b"], vec![vec!["x|y".into()]]);
        paper.plots(vec![("bars".into(), Plot::Bars(Bars::default()))]).code("evenkeel lab");
        let folder = tempfile::tempdir().unwrap();
        paper.write(folder.path()).unwrap();
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let markdown = "# T\n\nhere\n\n## H\n\n- One.\n\n| a | b |\n|---|---|\n| x\\|y |\n\n\
                        ![bars](bars.svg)\n\n    evenkeel lab\n";
        assert_eq!(read("README.md"), markdown);
        assert!(read("bars.svg").contains("<style>"));
        assert!(read("report.html").contains("<h2>H</h2>"));
    }
}
